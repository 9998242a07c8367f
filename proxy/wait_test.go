package proxy

import (
	"runtime"
	"testing"
	"time"
)

// waitFor gives way until cond holds; it fails the test after ten seconds.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}
