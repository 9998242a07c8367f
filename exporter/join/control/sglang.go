package control

// mapping reads a map with string keys: a message of SGLang-Omni, which begins with
// its type, or one of Mooncake's side channel, which has none. tail is the frame's
// last bytes, where b is not all of it.
func (m *Message) mapping(b, tail []byte) bool {
	r := reader{b: b}
	n, ok := r.mapping()
	if !ok || n == 0 {
		return false
	}
	first, ok := r.str()
	if !ok {
		return false
	}
	if string(first) != "type" {
		return m.sideMap(b)
	}
	if t, ok := r.str(); ok {
		m.Kind = sglangKind(t)
	}
	if m.Kind == Unknown {
		return false
	}
	for n--; n > 0 && !r.over; n-- {
		key, ok := r.str()
		if !ok {
			break
		}
		m.field(&r, key)
	}
	if r.over && len(tail) > 0 {
		m.tail(tail)
	}
	return true
}

func sglangKind(t []byte) Kind {
	switch string(t) {
	case "submit":
		return Submit
	case "data_ready":
		return DataReady
	case "data_ack":
		return DataAck
	case "stream":
		return Stream
	case "complete":
		return Complete
	case "abort":
		return Cancel
	}
	for _, c := range t {
		if c != '_' && (c < 'a' || c > 'z') {
			return Unknown
		}
	}
	if len(t) == 0 || len(t) > 64 {
		return Unknown
	}
	return Admin
}

// field reads the value of one of the message's own fields.
func (m *Message) field(r *reader, key []byte) {
	switch string(key) {
	case "request_id":
		if id, ok := r.text(); ok && len(m.Requests) == 0 {
			m.Requests = []string{id}
		}
	case "from_stage":
		m.From, _ = r.text()
	case "to_stage":
		m.To, _ = r.text()
	case "data_ref", "shm_metadata":
		m.reference(r)
	case "object_id":
		m.Object, _ = r.text()
	default:
		m.late(r, key)
	}
}

// late reads a field that may lie behind the payload.
func (m *Message) late(r *reader, key []byte) bool {
	switch string(key) {
	case "chunk_id":
		if v, ok := r.integer(); ok {
			m.Chunk = &v
		}
	case "is_done":
		if v, ok := r.boolean(); ok {
			m.Done = &v
		}
	case "success":
		if v, ok := r.boolean(); ok {
			m.Success = &v
		}
	case "modality":
		if v, ok := r.str(); ok && readable(v) {
			m.Modality = intern(v)
		}
	case "stage_id", "stage_name", "error":
		r.skip(1)
	default:
		r.skip(1)
		return false
	}
	return true
}

// tail reads the fields behind a payload that was not copied. It takes the longest
// row of known fields that ends exactly with the message, so that bytes of a payload
// which look like a field do not count.
func (m *Message) tail(b []byte) {
	for i := range b {
		if b[i] < 0xa5 || b[i] >= 0xc0 { // no known key is shorter than error
			continue
		}
		var try Message
		r := reader{b: b[i:]}
		known := true
		for known && r.i < len(r.b) {
			var key []byte
			if key, known = r.str(); known {
				known = try.late(&r, key)
			}
		}
		if known && !r.over {
			m.addLate(&try)
			return
		}
	}
}

func (m *Message) addLate(late *Message) {
	if m.Chunk == nil {
		m.Chunk = late.Chunk
	}
	if m.Done == nil {
		m.Done = late.Done
	}
	if m.Success == nil {
		m.Success = late.Success
	}
	if m.Modality == "" {
		m.Modality = late.Modality
	}
}

// reference reads data_ref: where the data lies. Those that are not a DataRef
// (InlineStreamChunk, TorchCudaIpcPayload, …) do not state the bytes.
func (m *Message) reference(r *reader) {
	n, _ := r.mapping()
	for ; n > 0 && !r.over; n-- {
		key, _ := r.str()
		switch string(key) {
		case "_type":
			if v, ok := r.str(); ok && readable(v) {
				m.RefType = intern(v)
			}
		case "object_id":
			m.Object, _ = r.text()
		case "transport":
			if v, ok := r.str(); ok && readable(v) {
				m.Transport = intern(v)
			}
		case "buffer", "info":
			m.buffer(r, 0)
		case "transfer_info":
			m.transferInfo(r)
		default:
			r.skip(1)
		}
	}
}

// maxNesting bounds the levels of a reference that are looked into.
const maxNesting = 4

// buffer reads buffer{info{transfer_info{…}}, length}, whose levels the generations
// nest differently.
func (m *Message) buffer(r *reader, level int) {
	n, _ := r.mapping()
	for ; n > 0 && !r.over; n-- {
		key, _ := r.str()
		switch {
		case string(key) == "transfer_info":
			m.transferInfo(r)
		case string(key) == "info" && level < maxNesting:
			m.buffer(r, level+1)
		case string(key) == "length" && m.Bytes == nil:
			m.Bytes = size(r)
		default:
			r.skip(1)
		}
	}
}

// transferInfo reads {shm_name, size}.
func (m *Message) transferInfo(r *reader) {
	n, _ := r.mapping()
	for ; n > 0 && !r.over; n-- {
		key, _ := r.str()
		switch string(key) {
		case "shm_name":
			m.Segment, _ = r.text()
		case "size":
			m.Bytes = size(r)
		default:
			r.skip(1)
		}
	}
}

// size reads a number of bytes.
func size(r *reader) *int64 {
	if v, ok := r.integer(); ok && v >= 0 {
		return &v
	}
	return nil
}

// intern gives the words that nearly every message holds without making a string.
func intern(b []byte) string {
	for _, w := range words {
		if string(b) == w {
			return w
		}
	}
	return string(b)
}

var words = [...]string{"shm", "cuda_ipc", "mooncake", "local_object", "DataRef", "InlineStreamChunk", "audio", "text"}
