// Package stages makes the mock server a server of several processes: a thinker, a
// talker and a code2wav beside the API process, which is the caller's, and Python's
// resource tracker. They hand over as vLLM-Omni does, on the wire and in the kernel, so
// that probes and joins can be seen at work on any machine:
//
//	func main() {
//		if stages.Main() { // a child of ours: it never returns
//			return
//		}
//		e, err := stages.Start(ctx, stages.Config{})
//		…
//		outs, err := e.Submit(ctx, stages.Request{ID: "chatcmpl-1", Words: words, Audio: true, Frames: 60})
//		for o := range outs { … }
//		err = e.Close()
//	}
//
// Mode ZMQ is vLLM-Omni 0.26.0: ZMTP over Unix sockets, process titles, chunks in
// /dev/shm under a lock with the server's own order of system calls, polled for every
// millisecond, 4 codec frames first and then 25 at a time. Mode Queues is the generation
// before: pickled queue items over pipes, data in psm_ segments, the stage's number in
// the environment.
//
// Data really travel: the text comes from token ids that the thinker sends back, the
// samples from codec frames that code2wav got from the talker, which got voice and
// length from the thinker. Close and a crash of any process leave nothing behind: the
// tracker removes what is left when the last of them is gone.
//
// Unlike the real server's: the lock files and the socket files are removed in the end;
// the sockets lie in a folder of their own; no model runs, a step burns a share of its
// time on the CPU and blocks for the rest; a stage starts in milliseconds and tells
// nothing in a log; a connection's greeting comes in one piece and READY has its
// properties in any order; a thread is a connection's, not a ZMQ context's; a timer wakes
// each process 20 times a second, see monitor.Keep.
//
// Only Linux has it; elsewhere Start returns errors.ErrUnsupported.
package stages
