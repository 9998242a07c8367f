package tap

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// analysisNice is the nice value of the threads that analyse. A batch may take
// milliseconds: where they share a core with the relay's loop, forwarding comes first.
const analysisNice = 10

// yieldToForwarding gives the calling goroutine a thread of its own, of lower
// priority than the rest of the process. Without the right to it nothing changes.
func yieldToForwarding() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), analysisNice)
}
