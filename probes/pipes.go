//go:build linux && amd64

package probes

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/probes/event"
)

// usesQueues says whether a server's processes talk over multiprocessing queues. Any
// two spawned processes share pipes that say nothing, so that pipes alone are no sign:
// vLLM-Omni's first generation (whose stages have no title) does, SGLang-Omni's leaders
// and followers do, and servers that only the user knows may.
func usesQueues(found []event.Process) bool {
	for i := range found {
		p := &found[i]
		switch {
		case p.Role == "api":
		case p.Server == "vllm-omni" && p.Role == "stage" && !strings.Contains(p.Cmdline, "StageEngineCoreProc"),
			p.Server == "sglang-omni" && p.Rank > 0, p.Server != "vllm-omni" && p.Server != "sglang-omni":
			return true
		}
	}
	return false
}

// sharedPipes returns the inodes of the pipes that two processes of one server have
// open: queues between them.
func sharedPipes(found []event.Process) (out []uint64) {
	holders := map[uint64]int{}
	for i := range found {
		for ino := range pipesOf(found[i].PID) {
			holders[ino]++
			if holders[ino] == 2 {
				out = append(out, ino)
			}
		}
	}
	return out
}

// pipesOf returns the pipes of a process, but for its standard streams, which a whole
// tree of processes may share.
func pipesOf(pid int) map[uint64]bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // gone, or discovery has said what is missing
	}
	out := map[uint64]bool{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err != nil || n <= 2 {
			continue
		}
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue
		}
		rest, ok := strings.CutPrefix(target, "pipe:[")
		if ino, err := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64); ok && err == nil {
			out[ino] = true
		}
	}
	return out
}
