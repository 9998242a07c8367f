package control

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// kinds are the kinds by the names of testdata/stages/control/messages.jsonl.
var kinds = map[string]Kind{
	"none": Unknown, "add": Add, "abort": Abort, "outputs": Outputs, "statistics": Statistics,
	"submit": Submit, "data_ready": DataReady, "data_ack": DataAck, "stream": Stream,
	"complete": Complete, "cancel": Cancel, "admin": Admin, "query": Query, "pull": Pull,
	"pull_done": PullDone, "pull_missing": PullMissing, "pull_failed": PullFailed,
	"query_found": QueryFound, "task": Task, "result": Result,
}

// sample is one line of messages.jsonl: a recorded message (those of pickle: written
// by Python's own pickle), and what a decoder of another make finds in it.
type sample struct {
	Source string `json:"source"`
	Frames []struct {
		Size int64  `json:"size"`
		Head []byte `json:"head"`
		Tail []byte `json:"tail"`
	} `json:"frames"`
	Want struct {
		Kind     string   `json:"kind"`
		Requests []string `json:"requests"`
		Outputs  []struct {
			ID          string `json:"id"`
			Tokens      int    `json:"tokens"`
			Finished    *int64 `json:"finished"`
			QueuedNS    int64  `json:"queued_ns"`
			ScheduledNS int64  `json:"scheduled_ns"`
		} `json:"outputs"`
		From    string   `json:"from"`
		To      string   `json:"to"`
		Chunk   *int64   `json:"chunk"`
		Done    *bool    `json:"done"`
		Object  string   `json:"object"`
		Segment string   `json:"segment"`
		Bytes   *int64   `json:"bytes"`
		RefType string   `json:"ref_type"`
		Key     string   `json:"key"`
		Host    string   `json:"host"`
		Port    int64    `json:"port"`
		Addrs   []uint64 `json:"addrs"`
		Lengths []uint64 `json:"lengths"`
	} `json:"want"`
}

func (s *sample) frames() []Frame {
	list := make([]Frame, len(s.Frames))
	for i, f := range s.Frames {
		list[i] = Frame{Size: f.Size, Head: f.Head, Tail: f.Tail}
	}
	return list
}

// want is the sample's message in our type, for the fields that the other decoder has.
func (s *sample) want() Message {
	w := &s.Want
	m := Message{
		Kind: kinds[w.Kind], From: w.From, To: w.To, Chunk: w.Chunk, Done: w.Done,
		Object: w.Object, Segment: w.Segment, Bytes: w.Bytes, RefType: w.RefType,
		Key: w.Key, Host: w.Host, Port: w.Port, Addrs: w.Addrs, Lengths: w.Lengths,
	}
	if len(w.Requests) > 0 {
		m.Requests = w.Requests
	}
	for _, o := range w.Outputs {
		m.Outputs = append(m.Outputs, Output{
			Request: o.ID, Tokens: o.Tokens, Finished: o.Finished,
			QueuedNS: o.QueuedNS, ScheduledNS: o.ScheduledNS,
		})
	}
	for _, f := range s.Frames {
		m.WireBytes += f.Size
	}
	return m
}

func samples(t testing.TB) []sample {
	t.Helper()
	b, err := os.ReadFile("../../../testdata/stages/control/messages.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var list []sample
	for line := range bytes.Lines(b) {
		var s sample
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		if _, ok := kinds[s.Want.Kind]; !ok {
			t.Fatalf("unknown kind %q", s.Want.Kind)
		}
		list = append(list, s)
	}
	return list
}

// find is the first sample of a kind whose source begins with from.
func find(t testing.TB, kind, from string) sample {
	t.Helper()
	for _, s := range samples(t) {
		if s.Want.Kind == kind && strings.HasPrefix(s.Source, from) {
			return s
		}
	}
	t.Fatalf("no sample %s of %s", kind, from)
	return sample{}
}

func TestDecodeRecorded(t *testing.T) {
	seen := map[string]int{}
	for _, s := range samples(t) {
		seen[s.Want.Kind]++
		m, ok := Decode(s.frames())
		want := s.want()
		if want.Kind == Unknown {
			if ok {
				t.Errorf("%s: decoded as %+v", s.Source, m)
			}
			continue
		}
		// The other decoder does not tell these.
		m.Transport, m.Modality, m.Success, m.Unseen = "", "", nil, 0
		for i := range m.Outputs {
			m.Outputs[i].Cut = false
		}
		if !ok || !reflect.DeepEqual(m, want) {
			t.Errorf("%s: got %s\nwant %s", s.Source, show(m), show(want))
		}
	}
	for k := range kinds {
		// No recording has these two; they are below.
		if seen[k] == 0 && k != "cancel" && k != "pull_failed" {
			t.Errorf("no sample of kind %s", k)
		}
	}
}

func show(m Message) string {
	b, _ := json.Marshal(m)
	return string(b)
}

func TestDecodeFurtherFields(t *testing.T) {
	s := find(t, "data_ready", "so-basic")
	if m, _ := Decode(s.frames()); m.Transport != "shm" {
		t.Errorf("transport %q", m.Transport)
	}
	s = find(t, "stream", "so-basic")
	if m, _ := Decode(s.frames()); m.Modality != "audio" || m.Chunk == nil {
		t.Errorf("stream: %s", show(m))
	}
	s = find(t, "complete", "so-basic")
	if m, _ := Decode(s.frames()); m.Success == nil || !*m.Success {
		t.Errorf("complete: %s", show(m))
	}
	s = find(t, "data_ack", "so-basic")
	if m, _ := Decode(s.frames()); m.Success == nil || !*m.Success {
		t.Errorf("ack: %s", show(m))
	}
}

// one is a message of one frame that was seen whole.
func one(b []byte) []Frame { return []Frame{{Size: int64(len(b)), Head: b}} }

func TestDecodeWritten(t *testing.T) {
	chunk, bytes0, no := int64(3), int64(65536), false
	id := "b1e5c0de-0001-4000-8000-000000000001"
	direct := pack(dict{
		{"type", "data_ready"},
		{"request_id", id},
		{"from_stage", "thinker"},
		{"to_stage", "talker_ar"},
		{"data_ref", dict{{"_type", "TorchCudaIpcStreamChunk"}, {"version", 1}, {"payload", make([]byte, 300)}, {"size", 12}}},
		{"chunk_id", 3},
	})
	for name, c := range map[string]struct {
		frames []Frame
		want   Message
	}{
		"trans_error": {one([]byte("trans_error")), Message{Kind: PullFailed}},
		"abort of SGLang-Omni": {
			one(pack(dict{{"type", "abort"}, {"request_id", id}})), Message{Kind: Cancel, Requests: []string{id}},
		},
		"abort of several": {
			[]Frame{{Size: 1, Head: []byte{1}}, one(pack(list{"a-1", "a-2", "a-3"}))[0]},
			Message{Kind: Abort, Requests: []string{"a-1", "a-2", "a-3"}},
		},
		"direct CUDA IPC states no bytes": {
			one(direct),
			Message{
				Kind: DataReady, Requests: []string{id}, From: "thinker", To: "talker_ar",
				RefType: "TorchCudaIpcStreamChunk", Chunk: &chunk,
			},
		},
		"first generation's shm_metadata": {
			one(pack(dict{
				{"type", "data_ready"},
				{"request_id", id},
				{"from_stage", "a"},
				{"to_stage", "b"},
				{"shm_metadata", dict{{"engine_id", "e"}, {"transfer_info", dict{{"shm_name", "psm_0a1b2c3d"}, {"size", 65536}}}}},
			})),
			Message{Kind: DataReady, Requests: []string{id}, From: "a", To: "b", Segment: "psm_0a1b2c3d", Bytes: &bytes0},
		},
		"negative acknowledgement": {
			one(pack(dict{
				{"type", "data_ack"},
				{"request_id", id},
				{"from_stage", "b"},
				{"to_stage", "a"},
				{"object_id", "o"},
				{"success", false},
				{"error", "lost"},
			})),
			Message{Kind: DataAck, Requests: []string{id}, From: "b", To: "a", Object: "o", Success: &no},
		},
		"envelope of REQ": {
			[]Frame{{}, one([]byte("info_not_found"))[0]}, Message{Kind: PullMissing},
		},
	} {
		for _, f := range c.frames {
			c.want.WireBytes += f.Size
		}
		if m, ok := Decode(c.frames); !ok || !reflect.DeepEqual(m, c.want) {
			t.Errorf("%s: got %s\nwant %s", name, show(m), show(c.want))
		}
	}
}

// TestDecodePickledTypes: what CPython 3.11 writes of tasks with an enumeration's member
// as their type, as vLLM-Omni 0.11 to 0.14 send them (entrypoints/stage_utils.py).
func TestDecodePickledTypes(t *testing.T) {
	const (
		class = "}\x94(\x8c\x04type\x94\x8c!vllm_omni.entrypoints.stage_utils\x94\x8c\x11OmniStageTaskType\x94\x93\x94"
		id    = "\x85\x94R\x94\x8c\nrequest_id\x94\x8c\nchatcmpl-1\x94"
		abort = "\x80\x04\x95l\x00\x00\x00\x00\x00\x00\x00" + class + "\x8c\x05abort\x94" + id + "u."
		task  = "\x80\x04\x95\x13\x01\x00\x00\x00\x00\x00\x00" + class + "\x8c\x08generate\x94" + id +
			"\x8c\x0fsampling_params\x94N\x8c\x0efrom_connector\x94\x88\x8c\nfrom_stage\x94\x8c\x010\x94\x8c\x08to_stage\x94\x8c\x011\x94" +
			"\x8c\x07sent_ts\x94G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x12connector_metadata\x94}\x94(\x8c\x03shm\x94}\x94(\x8c\x04name\x94" +
			"\x8c\x0cpsm_0badcafe\x94\x8c\x04size\x94Jp\x11\x01\x00uh\x17Jp\x11\x01\x00uu."
		// An abort is told by its type, not by a word in what a client asks for.
		talk = "\x80\x04\x95\x40\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\nrequest_id\x94\x8c\nchatcmpl-1\x94\x8c\rengine_inputs\x94\x8c\x05abort\x94u."
	)
	size := int64(70000)
	requests := []string{"chatcmpl-1"}
	for b, want := range map[string]Message{
		abort: {Kind: Abort, Requests: requests},
		task:  {Kind: Task, Requests: requests, From: "0", To: "1", Segment: "psm_0badcafe", Bytes: &size},
		talk:  {Kind: Task, Requests: requests},
	} {
		want.WireBytes = int64(len(b))
		if m, ok := Decode(one([]byte(b))); !ok || !reflect.DeepEqual(m, want) {
			t.Errorf("got %s\nwant %s", show(m), show(want))
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, frames := range map[string][]Frame{
		"nothing":                     nil,
		"an empty frame":              {{}},
		"nothing copied":              {{Size: 1}, {Size: 300}},
		"another type of request":     {{Size: 1, Head: []byte{2}}, one(pack(list{"a", "b"}))[0]},
		"a request without an id":     {{Size: 1, Head: []byte{0}}, one(pack(list{1, "b"}))[0]},
		"an id with control signs":    {{Size: 1, Head: []byte{0}}, one(pack(list{"a\x00b", "b"}))[0]},
		"a list of words":             one(pack(list{"a", "b", "c"})),
		"outputs that are none":       one(pack(list{0, list{"a"}, nil})),
		"a map of something":          one(pack(dict{{"a", 1}})),
		"a type in capitals":          one(pack(dict{{"type", "Data Ready"}})),
		"huge array":                  one([]byte{0xdd, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0}),
		"huge list of outputs":        one([]byte{0x98, 0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xa1, 'a'}),
		"a pickle's beginning":        one([]byte{0x80, 4}),
		"libzmq's own, a pointer":     one([]byte{0xc0, 0xcc, 0x27, 0x64, 0x7f, 0, 0, 0}),
		"a word that only begins so":  one([]byte("trans_doner")),
		"a query that is none":        one([]byte("query_info and more")),
		"a size below what it claims": {{Size: -4, Head: []byte{0x98}}},
	} {
		if m, ok := Decode(frames); ok || m.Kind != Unknown {
			t.Errorf("%s: %s", name, show(m))
		}
	}
}

// A list that claims more than was copied tells how many are unseen, and costs
// nothing.
func TestDecodeUnseen(t *testing.T) {
	b := pack(list{0, list{list{"id-1", list{7}, nil, nil, nil, nil, nil, nil}}, nil})
	b = slices.Replace(b, 2, 3, 0xdd, 0x7f, 0, 0, 0) // the list of one, now of 2^31 - 2^24
	cut := b[:len(b)-1]
	m, ok := Decode([]Frame{{Size: 1 << 30, Head: cut}})
	if !ok || !slices.Equal(m.Requests, []string{"id-1"}) || m.Unseen != 0x7f000000-1 {
		t.Fatalf("%v %s", ok, show(m))
	}
	if n := testing.AllocsPerRun(100, func() { Decode([]Frame{{Size: 1 << 30, Head: cut}}) }); n > 5 {
		t.Errorf("%v allocations", n)
	}
}

// A frame that is longer than what was copied gives what is there, never anything
// else, wherever it was cut.
func TestDecodeCutAnywhere(t *testing.T) {
	for _, s := range samples(t) {
		full, ok := Decode(s.frames())
		if !ok {
			continue
		}
		for i := range s.Frames {
			for n := range s.Frames[i].Head {
				frames := s.frames()
				frames[i].Head = frames[i].Head[:n]
				checkPart(t, frames, full)
				frames[i].Tail = nil
				checkPart(t, frames, full)
			}
		}
	}
}

// checkPart checks that what the cut frames show is part of the full message.
func checkPart(t *testing.T, frames []Frame, full Message) {
	t.Helper()
	m, ok := Decode(frames)
	if !ok {
		return
	}
	bad := m.Kind != full.Kind ||
		len(m.Requests) > len(full.Requests) || !slices.Equal(m.Requests, full.Requests[:len(m.Requests)]) ||
		len(m.Addrs) > len(full.Addrs) || !slices.Equal(m.Addrs, full.Addrs[:len(m.Addrs)]) ||
		len(m.Lengths) > len(full.Lengths) || !slices.Equal(m.Lengths, full.Lengths[:len(m.Lengths)]) ||
		m.Port != 0 && m.Port != full.Port ||
		(m.Kind == Add || m.Kind == Outputs || m.Kind == Abort) && len(m.Requests)+m.Unseen != len(full.Requests)+full.Unseen
	for _, p := range [][2]string{
		{m.From, full.From},
		{m.To, full.To},
		{m.Transport, full.Transport},
		{m.Segment, full.Segment},
		{m.Object, full.Object},
		{m.RefType, full.RefType},
		{m.Modality, full.Modality},
		{m.Key, full.Key},
		{m.Host, full.Host},
	} {
		bad = bad || p[0] != "" && p[0] != p[1]
	}
	bad = bad || otherThan(m.Chunk, full.Chunk) || otherThan(m.Bytes, full.Bytes) ||
		otherThan(m.Done, full.Done) || otherThan(m.Success, full.Success)
	for i, o := range m.Outputs {
		f := full.Outputs[i]
		if !o.Cut {
			bad = bad || !reflect.DeepEqual(o, f)
			continue
		}
		bad = bad || o.Tokens != 0 && o.Tokens != f.Tokens || otherThan(o.Finished, f.Finished) ||
			o.QueuedNS != 0 && o.QueuedNS != f.QueuedNS || o.ScheduledNS != 0 && o.ScheduledNS != f.ScheduledNS
	}
	if bad {
		t.Errorf("cut: %s\nfull: %s", show(m), show(full))
	}
}

// otherThan says whether a is there and not what b is.
func otherThan[T comparable](a, b *T) bool {
	return a != nil && (b == nil || *a != *b)
}

// Bytes of a payload that look like a field are none.
func TestTailOfPayload(t *testing.T) {
	id := "b1e5c0de-0001-4000-8000-000000000001"
	payload := make([]byte, 4000)
	copy(payload[4000-40:], "\xa8chunk_id\x07\xa7is_done\xc3")
	message := func(last ...pair) []Frame {
		b := pack(append(dict{
			{"type", "data_ready"},
			{"request_id", id},
			{"from_stage", "a"},
			{"to_stage", "b"},
			{"data_ref", dict{{"_type", "InlineStreamChunk"}, {"payload", payload}}},
		}, last...))
		return []Frame{{Size: int64(len(b)), Head: b[:1024], Tail: b[len(b)-64:]}}
	}
	if m, ok := Decode(message()); !ok || m.Chunk != nil || m.Done != nil || m.RefType != "InlineStreamChunk" {
		t.Errorf("no field: %s", show(m))
	}
	m, ok := Decode(message(pair{"chunk_id", 5}, pair{"is_done", false}))
	if !ok || m.Chunk == nil || *m.Chunk != 5 || m.Done == nil || *m.Done || m.Bytes != nil {
		t.Errorf("two fields: %s", show(m))
	}
}

// A frame little longer than the head is put together with its tail.
func TestDecodeHeadAndTailMeet(t *testing.T) {
	for _, extra := range []int{1, 63, 64} {
		b := pack(dict{
			{"type", "data_ready"},
			{"request_id", "r"},
			{"pad", strings.Repeat("x", 1024+extra-66)},
			{"to_stage", "talker_ar"},
		})
		f := Frame{Size: int64(len(b)), Head: slices.Clone(b[:1024]), Tail: b[len(b)-64:]}
		m, ok := Decode([]Frame{f})
		if !ok || m.To != "talker_ar" {
			t.Errorf("%d bytes: %s", len(b), show(m))
		}
		if !bytes.Equal(f.Head, b[:1024]) {
			t.Error("the head was written to")
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Frames[0].Head, s.Frames[len(s.Frames)-1].Head, s.Frames[0].Tail, s.Frames[0].Size)
	}
	f.Fuzz(func(t *testing.T, a, b, tail []byte, size int64) {
		Decode([]Frame{{Size: size, Head: a, Tail: tail}})
		frames := []Frame{{Size: int64(len(a)), Head: a}, {Size: size, Head: b, Tail: tail}, {Size: int64(len(b)), Head: b}}
		if m, ok := Decode(frames); ok {
			for _, r := range m.Requests {
				if r == "" || !bytes.Contains(a, []byte(r)) && !bytes.Contains(b, []byte(r)) && !bytes.Contains(tail, []byte(r)) {
					// Head and tail of one frame may hold a part each.
					if len(tail) == 0 {
						t.Errorf("request %q is in no frame", r)
					}
				}
			}
			if len(m.Outputs) != 0 && len(m.Outputs) != len(m.Requests) || m.Unseen < 0 {
				t.Errorf("%s", show(m))
			}
		}
	})
}

func benchmark(b *testing.B, kind, source string) {
	s := find(b, kind, source)
	frames := s.frames()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Decode(frames); !ok {
			b.Fatal("not decoded")
		}
	}
}

func BenchmarkDecodeAdd(b *testing.B)        { benchmark(b, "add", "vo-real-speech") }
func BenchmarkDecodeOutputs(b *testing.B)    { benchmark(b, "outputs", "vo-real-speech") }
func BenchmarkDecodeStatistics(b *testing.B) { benchmark(b, "statistics", "vo-real") }
func BenchmarkDecodeDataReady(b *testing.B)  { benchmark(b, "data_ready", "so-basic") }
func BenchmarkDecodeStream(b *testing.B)     { benchmark(b, "stream", "so-basic") }
func BenchmarkDecodePull(b *testing.B)       { benchmark(b, "pull", "mc-tcp") }
func BenchmarkDecodeResult(b *testing.B)     { benchmark(b, "result", "pickle") }
