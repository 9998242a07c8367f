package load

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails when goroutines outlive the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > 2 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); code == 0 && n > 2 {
		buf := make([]byte, 1<<16)
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n%s\n", n, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}
