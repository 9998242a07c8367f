// Package find tells which processes are the stages of a server, from outside.
//
// It has two halves. The pure one takes Snapshots of processes and says what they
// are: Classify, Choose, Compare, ParseRules, StageNames. The thin one reads /proc:
// Finder scans, keeps what cannot be read twice (the environment at exec), takes
// hints from the kernel's exec, fork and exit events, and says what changed.
//
//	f := find.New(find.Config{Port: 8000})
//	result := f.Scan()              // once, or
//	err := f.Run(ctx, 10*time.Second, use) // until the context ends, told by Exec, Fork, Exit
//
// What is told by what, best first:
//
//   - a rule of the user's own file;
//   - vLLM-Omni: the process title <prefix>::StageEngineCoreProc_stage<N>_replica<R>,
//     the FIFO that a receiving stage holds open, or, in its first generation, the
//     exec-time variable VLLM_LOGGING_PREFIX="[Stage-N] "; its workers have no stage
//     in their title and take their parent's;
//   - SGLang-Omni: the Unix socket that a stage listens on, stage_<name>.sock, and
//     comm_<name>_rank<k>.sock for the followers; the server itself listens on
//     completion.sock. A process with several stages has one value whose Stage is
//     their names joined with "+" (see event.Process), since nothing outside can tell its
//     events apart;
//   - the server: its command line, or being the parent.
//
// A title is no proof: any process may set it. It counts where the process is below a
// server (by command line, or by a listening TCP socket) or maps libzmq itself. What
// has the title alone is a Doubt, and no process. Titles are other people's bytes:
// print them quoted.
//
// It starts, stops, writes and attaches nothing. What could not be read is named
// (Result.Missing), never taken for absent.
package find
