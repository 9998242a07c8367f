package control

import "math"

// The types of vLLM's requests to an engine core that name requests.
const (
	requestAdd   = 0
	requestAbort = 1
)

// The places in vLLM's arrays, by version 0.26 of vLLM-Omni.
const (
	outputTokens = 1
	outputFinish = 5
	outputEvents = 7
)

// The types of the scheduler's events.
const (
	eventQueued    = 1
	eventScheduled = 2
)

// request reads the frame behind a type frame: an EngineCoreRequest, whose
// first field is the id, or the list of ids to abort.
func (m *Message) request(t byte, payload *Frame) bool {
	if t != requestAdd && t != requestAbort {
		return false
	}
	r := reader{b: payload.Head}
	n, ok := r.array()
	if !ok {
		return false
	}
	*m = Message{Kind: Abort}
	if t == requestAdd {
		if n < 2 {
			return false
		}
		m.Kind, n = Add, 1
	}
	for i := range n {
		id, ok := r.text()
		if r.over || len(m.Requests) == maxNames {
			m.Unseen = n - i
			break
		}
		if !ok {
			return false
		}
		m.Requests = append(m.Requests, id)
	}
	return true
}

// outputs reads EngineCoreOutputs: [engine, [output, …], …].
func (m *Message) outputs(b []byte) bool {
	r := reader{b: b}
	if n, ok := r.array(); !ok || n < 3 || n > 32 {
		return false
	}
	if _, ok := r.integer(); !ok {
		return false
	}
	n, ok := r.array()
	if !ok {
		return false
	}
	if n == 0 {
		m.Kind = Statistics
		return true
	}
	// An output takes at least ten bytes, so that a claimed count costs no memory.
	room := min(n, len(b)/10+1, maxNames)
	m.Kind, m.Requests, m.Outputs = Outputs, make([]string, 0, room), make([]Output, 0, room)
	for i := range n {
		o, seen, ok := readOutput(&r, i == n-1)
		if !ok {
			return false
		}
		if !seen || len(m.Requests) == maxNames {
			m.Unseen = n - i
			break
		}
		m.Requests = append(m.Requests, o.Request)
		m.Outputs = append(m.Outputs, o)
	}
	return true
}

// readOutput reads one output. seen is false where the bytes end before its id is
// complete, ok where it is no output. What stands behind the events of the last output
// is not looked at.
func readOutput(r *reader, last bool) (o Output, seen, ok bool) {
	n, ok := r.array()
	if !ok {
		return o, false, r.over
	}
	if o.Request, ok = r.text(); !ok {
		return o, false, r.over
	}
	for i := 1; i < n && i <= outputEvents && !r.over; i++ {
		switch i {
		case outputTokens:
			if tokens, ok := r.array(); ok {
				o.Tokens = tokens
				r.skip(tokens)
			}
		case outputFinish:
			if v, ok := r.integer(); ok {
				o.Finished = &v
			}
		case outputEvents:
			readEvents(r, &o)
		default:
			r.skip(1)
		}
	}
	o.Cut = r.over
	if !last {
		r.skip(n - 1 - outputEvents)
	}
	return o, true, true
}

// readEvents reads [{type, timestamp}, …].
func readEvents(r *reader, o *Output) {
	n, _ := r.array()
	for ; n > 0 && !r.over; n-- {
		pairs, _ := r.mapping()
		var kind int64
		var at float64
		for ; pairs > 0 && !r.over; pairs-- {
			key, _ := r.str()
			switch string(key) {
			case "type":
				kind, _ = r.integer()
			case "timestamp":
				at, _ = r.number()
			default:
				r.skip(1)
			}
		}
		if !(at > 0 && at < math.MaxInt64/1e9) {
			continue
		}
		switch kind {
		case eventQueued:
			o.QueuedNS = int64(math.Round(at * 1e9))
		case eventScheduled:
			o.ScheduledNS = int64(math.Round(at * 1e9))
		}
	}
}
