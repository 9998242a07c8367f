package message

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// The types of an event.
const (
	Queued    = 1
	Scheduled = 2
)

// Event is one of the scheduler's own: NS is CLOCK_MONOTONIC.
type Event struct {
	Type int
	NS   int64
}

// Finish reasons.
const (
	FinishStop   = 0
	FinishLength = 1
	FinishAbort  = 2
)

// Tensor is a tensor of an output. Up to 255 bytes stand in the message, more come in a
// frame of their own.
type Tensor struct {
	Name, DType string
	Shape       []int
	Data        []byte
}

// Output is what a step made for one request.
type Output struct {
	ID     string
	Tokens []int
	// Finish is the reason to end, Stop the token that was one; nil while it goes on.
	Finish, Stop *int
	Events       []Event
	// PromptTokens stands in the statistics of a prefill, nil without one.
	PromptTokens *int
	Tensors      []Tensor
}

// Stats is the state of a stage's scheduler.
type Stats struct {
	Running, Waiting int
	// Usage is the share of the key-value cache in use.
	Usage float64
}

const (
	outputsFields = 8
	outputFields  = 17
	inlineLimit   = 256 // VLLM_MSGPACK_ZERO_COPY_THRESHOLD
	extRawView    = 3   // vLLM's CUSTOM_TYPE_RAW_VIEW
	maxTensors    = 16
)

// EncodeOutputs returns the frames of a message: outputs of one step, statistics (nil
// for none), the stamp in CLOCK_MONOTONIC nanoseconds.
func EncodeOutputs(outs []Output, s *Stats, stampNS int64) [][]byte {
	e := newEncoder()
	frames := [][]byte{nil}
	e.array(outputsFields)
	e.int(0)
	e.array(len(outs))
	var finished []string
	for _, o := range outs {
		frames = e.output(o, frames)
		if o.Finish != nil && !isAudio(o) { // a generation stage names none, as recorded
			finished = append(finished, o.ID)
		}
	}
	e.stats(s)
	e.float(float64(stampNS) / 1e9)
	e.nils(1)
	if finished == nil {
		e.nils(1)
	} else {
		e.strs(finished)
	}
	e.nils(2)
	frames[0] = e.b.Bytes()
	return frames
}

// TensorAudio is the name of code2wav's samples.
const TensorAudio = "model_outputs"

func isAudio(o Output) bool { return len(o.Tensors) > 0 && o.Tensors[0].Name == TensorAudio }

func (e encoder) output(o Output, frames [][]byte) [][]byte {
	e.array(outputFields)
	e.str(o.ID)
	e.ints(o.Tokens)
	e.nils(3)
	e.optional(o.Finish)
	e.optional(o.Stop)
	e.events(o.Events)
	e.nils(3)
	e.prefill(o.PromptTokens)
	e.nils(1)
	e.int(0)
	if len(o.Tensors) == 0 {
		e.nils(1)
	} else {
		e.mapping(len(o.Tensors))
	}
	for _, t := range o.Tensors {
		e.str(t.Name)
		e.array(3)
		e.str(t.DType)
		e.ints(t.Shape)
		if len(t.Data) < inlineLimit {
			_ = e.EncodeExtHeader(extRawView, len(t.Data))
			e.b.Write(t.Data)
			continue
		}
		e.int(int64(len(frames)))
		frames = append(frames, t.Data)
	}
	e.flag(false)
	e.nils(1)
	return frames
}

func (e encoder) optional(n *int) {
	if n == nil {
		e.nils(1)
		return
	}
	e.int(int64(*n))
}

func (e encoder) events(events []Event) {
	if len(events) == 0 {
		e.nils(1)
		return
	}
	e.array(len(events))
	for _, v := range events {
		e.mapping(2)
		e.kv("type", int64(v.Type))
		e.str("timestamp")
		e.float(float64(v.NS) / 1e9)
	}
}

func (e encoder) prefill(tokens *int) {
	if tokens == nil {
		e.nils(1)
		return
	}
	e.mapping(6)
	e.kv("num_prompt_tokens", int64(*tokens))
	e.kv("num_computed_tokens", int64(*tokens))
	for _, k := range []string{
		"num_cached_tokens", "num_local_cached_tokens", "num_external_cached_tokens", "num_cache_creation_tokens",
	} {
		e.kv(k, 0)
	}
}

func (e encoder) stats(s *Stats) {
	if s == nil {
		e.nils(1)
		return
	}
	e.mapping(16)
	e.kv("num_running_reqs", int64(s.Running))
	e.kv("num_waiting_reqs", int64(s.Waiting))
	e.kv("num_skipped_waiting_reqs", 0)
	e.kv("step_counter", 0)
	e.kv("current_wave", 0)
	e.str("kv_cache_usage")
	e.float(s.Usage)
	e.str("iteration_details")
	e.nils(1)
	e.str("prefix_cache_stats")
	e.mapping(7)
	e.str("reset")
	e.flag(false)
	for _, k := range []string{
		"requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits",
	} {
		e.kv(k, 0)
	}
	e.str("connector_prefix_cache_stats")
	e.nils(1)
	e.str("kv_cache_eviction_events")
	e.array(0)
	for _, k := range []string{"spec_decoding_stats", "kv_connector_stats"} {
		e.str(k)
		e.nils(1)
	}
	for _, k := range []string{"waiting_lora_adapters", "running_lora_adapters"} {
		e.str(k)
		e.mapping(0)
	}
	for _, k := range []string{"cudagraph_stats", "perf_stats"} {
		e.str(k)
		e.nils(1)
	}
}

// DecodeOutputs reads what EncodeOutputs made: all of the outputs but their prefill
// statistics.
func DecodeOutputs(frames [][]byte) ([]Output, error) {
	if len(frames) == 0 {
		return nil, errors.New("outputs without a frame")
	}
	d := decoder{msgpack.NewDecoder(bytes.NewReader(frames[0]))}
	err := errors.Join(d.exactly(outputsFields), d.skip(1))
	n := 0
	if err == nil {
		n, err = d.length(maxList)
	}
	var outs []Output
	for ; n > 0 && err == nil; n-- {
		var o Output
		if o, err = d.output(frames); err == nil {
			outs = append(outs, o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading outputs of %d bytes: %w", len(frames[0]), err)
	}
	return outs, nil
}

func (d decoder) output(frames [][]byte) (o Output, err error) {
	if err = d.exactly(outputFields); err != nil {
		return o, err
	}
	if o.ID, err = d.DecodeString(); err != nil {
		return o, err
	}
	if o.Tokens, err = d.ints(); err != nil {
		return o, err
	}
	if err = d.skip(3); err != nil {
		return o, err
	}
	if o.Finish, err = d.optional(); err != nil {
		return o, err
	}
	if o.Stop, err = d.optional(); err != nil {
		return o, err
	}
	if o.Events, err = d.events(); err != nil {
		return o, err
	}
	if err = d.skip(6); err != nil {
		return o, err
	}
	if o.Tensors, err = d.tensors(frames); err != nil {
		return o, err
	}
	return o, d.skip(2)
}

func (d decoder) optional() (*int, error) {
	var n *int
	err := d.Decode(&n)
	return n, err
}

func (d decoder) events() ([]Event, error) {
	n, err := d.length(1024)
	var out []Event
	for ; n > 0 && err == nil; n-- {
		var v Event
		if v, err = d.event(); err == nil {
			out = append(out, v)
		}
	}
	return out, err
}

func (d decoder) event() (v Event, err error) {
	if n, err := d.DecodeMapLen(); err != nil || n != 2 {
		return v, errors.Join(errLength, err)
	}
	if err = d.skip(1); err != nil {
		return v, err
	}
	if v.Type, err = d.DecodeInt(); err != nil {
		return v, err
	}
	if err = d.skip(1); err != nil {
		return v, err
	}
	s, err := d.DecodeFloat64()
	v.NS = int64(s * 1e9)
	return v, err
}

func (d decoder) tensors(frames [][]byte) ([]Tensor, error) {
	n, err := d.DecodeMapLen()
	if err == nil && n > maxTensors {
		err = fmt.Errorf("%d tensors, more than %d", n, maxTensors)
	}
	var out []Tensor
	for ; n > 0 && err == nil; n-- {
		var t Tensor
		if t, err = d.tensor(frames); err == nil {
			out = append(out, t)
		}
	}
	return out, err
}

func (d decoder) tensor(frames [][]byte) (t Tensor, err error) {
	if t.Name, err = d.DecodeString(); err != nil {
		return t, err
	}
	if err = d.exactly(3); err != nil {
		return t, err
	}
	if t.DType, err = d.DecodeString(); err != nil {
		return t, err
	}
	if t.Shape, err = d.ints(); err != nil {
		return t, err
	}
	code, err := d.PeekCode()
	if err != nil {
		return t, err
	}
	if isNumber(code) {
		i, err := d.DecodeInt()
		if err == nil && (i < 1 || i >= len(frames)) {
			err = fmt.Errorf("a tensor in frame %d of %d", i, len(frames))
		}
		if err == nil {
			t.Data = frames[i]
		}
		return t, err
	}
	_, size, err := d.DecodeExtHeader()
	if err == nil && (size < 0 || size >= inlineLimit) {
		err = fmt.Errorf("a tensor of %d bytes in the message", size)
	}
	if err == nil {
		t.Data = make([]byte, size)
		err = d.ReadFull(t.Data)
	}
	return t, err
}

// isNumber tells whether a first byte is that of an unsigned integer.
func isNumber(code byte) bool { return code <= 0x7f || code >= 0xcc && code <= 0xcf }
