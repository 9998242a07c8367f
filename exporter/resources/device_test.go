package resources

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/omnitap/omnitap/exporter/energy"
	"github.com/omnitap/omnitap/probes/gpu"
	"github.com/omnitap/omnitap/probes/host/usage"
)

// TestRealGPU samples a machine's real cards for testdata/gpu/power.py, which says on
// standard input what to do, a line each, and judges what comes out:
//
//	idle FROM TO / load FROM TO / successes N    mono_ns of the windows, for the energy
//	stop                                         close resources.parquet, write energy.json and status.json
//
// It needs REQUIRE_GPU=1, and OMNITAP_GPU_OUT and OMNITAP_GPU_PID: the folder for the
// files, and the process that is the stage "matmul".
func TestRealGPU(t *testing.T) {
	if os.Getenv("REQUIRE_GPU") == "" {
		t.Skip("REQUIRE_GPU is not set: make test-gpu-power sets it, on a machine with a GPU")
	}
	dir := os.Getenv("OMNITAP_GPU_OUT")
	pid, err := strconv.Atoi(os.Getenv("OMNITAP_GPU_PID"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, Config{RunID: "gpu-power", Node: "device"})
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	var once sync.Once
	cards, err := gpu.New(gpu.Config{Sink: func(s *gpu.Sample) { w.GPU(s); once.Do(func() { close(up) }) }})
	if err != nil {
		t.Fatal(err)
	}
	stages := func() []usage.Process { return []usage.Process{{PID: pid, Stage: "matmul"}} }
	host, err := usage.New(usage.Config{Processes: stages, Sink: w.Usage})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { host.Run(ctx) })
	both.Go(func() {
		if err := cards.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	go func() {
		<-up
		fmt.Fprintln(os.Stdout, "SAMPLING")
	}()
	in := obey(t)
	stop()
	both.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	status := cards.Status()
	if status.State != gpu.StateSampling || status.Devices == 0 {
		t.Errorf("%+v", status)
	}
	in.IntervalNS = status.IntervalNS
	in.Devices, err = Samples(dir, energy.Window{FromNS: in.Idle.FromNS - 1e9, ToNS: in.Load.ToNS + 1e9})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "energy.json"), energy.Of(in))
	put(t, filepath.Join(dir, "status.json"), map[string]any{"gpu": status, "host": host.Status(), "file": w.Stats()})
}

// obey reads what the script says up to "stop".
func obey(t *testing.T) (in energy.Input) {
	t.Helper()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "stop" {
		var what string
		var a, b int64
		if n, _ := fmt.Sscan(lines.Text(), &what, &a, &b); n < 2 {
			t.Fatalf("what is %q?", lines.Text())
		}
		switch what {
		case "idle":
			in.Idle, in.IdleState = energy.Window{FromNS: a, ToNS: b}, "a CUDA context and its memory, no kernels"
		case "load":
			in.Load = energy.Window{FromNS: a, ToNS: b}
		case "successes":
			in.Successes = int(a)
		default:
			t.Fatalf("what is %q?", lines.Text())
		}
	}
	return in
}

func put(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
