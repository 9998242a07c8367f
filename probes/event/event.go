// Package event holds what the probes see, one value a kernel event, and what
// discovery found, with the file form of both (records.md section 4). It is pure:
// it opens nothing and knows no BPF, so that a join can be made from files alone.
package event

// Probe names what saw an event.
type Probe uint8

// The probes. System calls are told at their return (EnterNS is the call), but for
// FTruncate, FlockEnter and Close, which are told at the call.
const (
	Unknown Probe = iota
	OpenAt
	// OpenMisses is several opens of a segment that was not there, counted in the
	// kernel: EnterNS is the first, MonoNS the last, Count how many.
	OpenMisses
	FTruncate
	FlockEnter
	FlockExit
	Close
	Unlink
	ZMQSend
	ZMQRecv
	ZMQBind
	ZMQConnect
	Send
	Recv
	Bind
	Connect
	Accept
	SockState
	MooncakeSubmit
	MooncakeStart
	SchedSwitch
	SchedWakeup
	// SchedSample is the sum of a process's run, runnable and blocked time up to
	// MonoNS, in place of its single switches.
	SchedSample
	Fork
	Exec
	Exit
	// Signal is a signal sent to a process, OOMKill the kernel's choice of a victim.
	Signal
	OOMKill
	// CUDACall is a call of the driver, CUDACount several of one function, counted in
	// the kernel: EnterNS is the first, MonoNS the last, Count how many.
	CUDACall
	CUDACount
	// Heartbeat is a probe's proof of life: Count is how often it was hit.
	Heartbeat
	// Loss is what a family's ring had no room for since the last one: Count.
	Loss
)

// Event is one kernel event. Which fields are set depends on the probe; the rest
// is zero. Head and Tail belong to the event.
type Event struct {
	// MonoNS is CLOCK_MONOTONIC nanoseconds, as bpf_ktime_get_ns.
	MonoNS int64
	// EnterNS is the call's time, 0 where the probe tells none.
	EnterNS int64
	// PID is the process (tgid), TID the thread.
	PID, TID int32
	Comm     string
	Probe    Probe
	FD       int32
	// Ret is what the call returned: a negative error number, or the result.
	Ret int64
	// Flags is the flags of OpenAt, the operation of the flocks, the prev_state of
	// SchedSwitch, the number of Signal.
	Flags int64
	// Size is the bytes of FTruncate, of a ZMQ frame, of a socket call (asked for),
	// of a copy of CUDACall.
	Size int64
	// Count is described at the probes that have it.
	Count int64
	// Path is a file, an address (Bind, Connect, Accept: HOST:PORT or unix:PATH), an
	// endpoint (ZMQBind, ZMQConnect), a function's name (CUDACall, CUDACount, Loss:
	// the family), the file of Exec.
	Path string
	// Call is the system call of Send and Recv: write, sendto, sendmsg, read, …
	Call string
	// Sock is the address of a ZMQ socket in its process.
	Sock uint64
	// More says that another frame of the same message follows; MsgType is libzmq's
	// type of the message.
	More    bool
	MsgType uint8
	// Head is the first bytes of a frame or call, Tail the last 64 where it is longer.
	Head, Tail []byte
	// Args are what the probe's own description says: SockState {old, new, source
	// port, destination port} with Path "SOURCE DESTINATION"; SchedSwitch {cpu,
	// prev_tgid, prev_tid, next_tgid, next_tid}; SchedWakeup, Fork, Exit {tgid or
	// child, tid, parent}; SchedSample {run, runnable, blocked} in ns; Mooncake and
	// CUDACall the call's first arguments.
	Args [5]int64
}

// Process is one process of a server, as discovery found it.
type Process struct {
	PID     int    `json:"pid"`
	PPID    *int   `json:"ppid"`
	Cmdline string `json:"cmdline"`
	// StageID is the server's number of the stage, nil where it has none.
	StageID *int `json:"stage_id"`
	// Stage is the stage's name, "stage N" where none is known, "api" for the process
	// that clients talk to.
	Stage string `json:"stage"`
	// Server is vllm-omni, sglang-omni, or what a rule calls it; Role is api, stage or
	// worker; Root the pid of the server that it belongs to.
	Server  string `json:"server,omitempty"`
	Role    string `json:"role,omitempty"`
	Replica int    `json:"replica,omitempty"`
	Rank    int    `json:"rank,omitempty"`
	Root    int    `json:"root,omitempty"`
	// StartNS is the process's start in clock ticks since boot: with the pid it tells
	// one process from a later one of the same number.
	StartTicks uint64 `json:"start_ticks,omitempty"`
	// ClockNS is added to the times that its messages tell, where its machine has another
	// clock than the one that events are told in.
	ClockNS int64 `json:"clock_ns,omitempty"`
	// Why says what it was found by, in words, the strongest first.
	Why []string `json:"why,omitempty"`
}

// Processes is the form of processes.json.
type Processes struct {
	Processes []Process `json:"processes"`
	// ZMQBind lists {pid, endpoint} of the ZMQ sockets that were bound.
	ZMQBind []Endpoint `json:"zmq_bind"`
}

// Endpoint is one bound ZMQ socket; its JSON is [pid, "endpoint"].
type Endpoint struct {
	PID  int
	Addr string
}
