package event

// field is the place of an argument in an Event.
type field uint8

const (
	inEnter field = iota
	inFD
	inRet
	inFlags
	inSize
	inCount
	inPath
	inCall
	inSock // a string "0x…"
	inMore
	inMsgType
	inHead // base64
	inTail // base64
	inSource
	inDestination
	inArgs // the first of Args; the others follow
)

// arg is one argument of a probe in the file.
type arg struct {
	name string
	in   field
	// optional ones are written only where they are not zero.
	optional bool
}

// spec is the file form of one probe: its name, and its arguments in the order of
// their names, as they are written.
type spec struct {
	name string
	args []arg
}

// specs is the table of the file form. The README of this package shows it to
// readers; a test holds both together.
var specs = [...]spec{
	OpenAt:     {"openat", []arg{{"enter_ns", inEnter, false}, {"flags", inFlags, false}, {"path", inPath, false}, {"ret", inRet, false}}},
	OpenMisses: {"openat_misses", []arg{{"count", inCount, false}, {"first_ns", inEnter, false}, {"path", inPath, false}}},
	FTruncate:  {"ftruncate", []arg{{"fd", inFD, false}, {"size", inSize, false}}},
	FlockEnter: {"flock_enter", []arg{{"fd", inFD, false}, {"op", inFlags, false}}},
	FlockExit:  {"flock_exit", []arg{{"enter_ns", inEnter, true}, {"fd", inFD, false}, {"op", inFlags, false}, {"ret", inRet, false}}},
	Close:      {"close", []arg{{"fd", inFD, false}}},
	Unlink:     {"unlink", []arg{{"enter_ns", inEnter, false}, {"path", inPath, false}, {"ret", inRet, false}}},
	ZMQSend:    {"zmq_msg_send", frameArgs},
	ZMQRecv:    {"zmq_msg_recv", frameArgs},
	ZMQBind:    {"zmq_bind", []arg{{"endpoint", inPath, false}, {"sock", inSock, false}}},
	ZMQConnect: {"zmq_connect", []arg{{"endpoint", inPath, false}, {"sock", inSock, false}}},
	Send:       {"send", callArgs},
	Recv:       {"recv", callArgs},
	Bind:       {"bind", addrArgs},
	Connect:    {"connect", addrArgs},
	Accept:     {"accept", []arg{{"addr", inPath, false}, {"enter_ns", inEnter, true}, {"fd", inFD, false}, {"ret", inRet, false}}},
	SockState: {"inet_sock_set_state", []arg{
		{"daddr", inDestination, false},
		{"dport", inArgs + 3, false},
		{"new", inArgs + 1, false},
		{"old", inArgs, false},
		{"saddr", inSource, false},
		{"sport", inArgs + 2, false},
	}},
	MooncakeSubmit: {"mc_submitTransfer", mooncakeArgs},
	MooncakeStart:  {"mc_startTransfer", mooncakeArgs},
	SchedSwitch: {"sched_switch", []arg{
		{"cpu", inArgs, false},
		{"next_tgid", inArgs + 3, false},
		{"next_tid", inArgs + 4, false},
		{"prev_state", inFlags, false},
		{"prev_tgid", inArgs + 1, false},
		{"prev_tid", inArgs + 2, false},
	}},
	SchedWakeup: {"sched_wakeup", []arg{{"tgid", inArgs, false}, {"tid", inArgs + 1, false}}},
	SchedSample: {"sched_sample", []arg{
		{"blocked_ns", inArgs + 2, false},
		{"first_ns", inEnter, true},
		{"run_ns", inArgs, false},
		{"runnable_ns", inArgs + 1, false},
	}},
	Fork: {"sched_process_fork", []arg{{"child", inArgs, false}, {"child_tid", inArgs + 1, false}, {"parent", inArgs + 2, false}}},
	Exec: {"sched_process_exec", []arg{{"path", inPath, false}}},
	Exit: {"sched_process_exit", []arg{{"tgid", inArgs, false}, {"tid", inArgs + 1, false}}},
	Signal: {"signal", []arg{
		{"code", inArgs + 2, true},
		{"ret", inRet, true},
		{"signal", inFlags, false},
		{"target", inArgs, false},
		{"target_tid", inArgs + 1, true},
	}},
	OOMKill: {"oom_kill", []arg{{"size", inSize, true}, {"target", inArgs, false}, {"victim", inPath, true}}},
	CUDACall: {"cuda_call", []arg{
		{"a1", inArgs, true},
		{"a2", inArgs + 1, true},
		{"a3", inArgs + 2, true},
		{"a4", inArgs + 3, true},
		{"a5", inArgs + 4, true},
		{"enter_ns", inEnter, false},
		{"fn", inPath, false},
		{"ret", inRet, false},
		{"size", inSize, true},
	}},
	CUDACount: {"cuda_count", []arg{{"count", inCount, false}, {"first_ns", inEnter, false}, {"fn", inPath, false}}},
	Heartbeat: {"heartbeat", []arg{{"count", inCount, false}, {"family", inPath, true}}},
	Loss:      {"loss", []arg{{"count", inCount, false}, {"family", inPath, false}}},
}

// Arguments that two probes have in common.
var (
	frameArgs = []arg{
		{"enter_ns", inEnter, false},
		{"head_b64", inHead, false},
		{"more", inMore, false},
		{"msg_type", inMsgType, false},
		{"ret", inRet, false},
		{"size", inSize, false},
		{"sock", inSock, false},
		{"tail_b64", inTail, true},
	}
	callArgs = []arg{
		{"call", inCall, false},
		{"enter_ns", inEnter, false},
		{"fd", inFD, false},
		{"head_b64", inHead, false},
		{"len", inSize, false},
		{"ret", inRet, false},
		{"tail_b64", inTail, true},
	}
	addrArgs     = []arg{{"addr", inPath, false}, {"enter_ns", inEnter, true}, {"fd", inFD, false}, {"ret", inRet, true}}
	mooncakeArgs = []arg{
		{"a1", inArgs, false},
		{"a2", inArgs + 1, false},
		{"a3", inArgs + 2, true},
		{"a4", inArgs + 3, true},
		{"a5", inArgs + 4, true},
	}
)

// byName finds a probe by its name in the file.
var byName = func() map[string]Probe {
	m := make(map[string]Probe, len(specs))
	for p := range specs {
		if specs[p].name != "" {
			m[specs[p].name] = Probe(p)
		}
	}
	return m
}()

// String is the probe's name as it stands in raw.jsonl, "unknown" for any other value.
func (p Probe) String() string {
	if int(p) < len(specs) && specs[p].name != "" {
		return specs[p].name
	}
	return "unknown"
}
