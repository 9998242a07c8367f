// Package message is what the API process and the stages of the fake server tell
// each other: vLLM's engine core messages as vLLM-Omni 0.26.0 sends them, field by
// field. Only what the stages need is read back. It is pure.
package message

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// The types of a request to an engine core, its first frame.
const (
	TypeAdd   = 0x00
	TypeAbort = 0x01
)

const (
	addFields = 22
	addInfo   = 20 // additional_information
	// placeholder is the length of the prompt that later stages get at once.
	placeholder = 17
	maxList     = 1 << 22
)

// Add is a request for a stage. Everything but ID, HTTPID and Prompt is read from
// the additional information, where a real server has other things.
type Add struct {
	// ID is the engine id, HTTPID the one of the request it was made for.
	ID, HTTPID string
	// Prompt is the token ids for stage 0; later stages get zeros in their place.
	Prompt []int
	// ArrivalNS is the wall clock in nanoseconds.
	ArrivalNS int64
	// FinalStage is the last stage that works on it: 0 for text alone, 2 for audio.
	FinalStage int
	// Script is the token ids that stage 0 is to say, Frames how long the talker
	// speaks, Seed its voice. They go to stage 0 only, the others get them from it.
	Script []int
	Frames int
	Seed   uint64
	// StepNS is how long a step of this stage takes, 0 for the stage's own.
	StepNS int64
}

type encoder struct {
	*msgpack.Encoder
	b *bytes.Buffer
}

// newEncoder makes an encoder into memory: no call of it can fail.
func newEncoder() encoder {
	b := new(bytes.Buffer)
	e := msgpack.NewEncoder(b)
	e.UseCompactInts(true)
	return encoder{e, b}
}

func (e encoder) array(n int)          { _ = e.EncodeArrayLen(n) }
func (e encoder) mapping(n int)        { _ = e.EncodeMapLen(n) }
func (e encoder) str(s string)         { _ = e.EncodeString(s) }
func (e encoder) int(n int64)          { _ = e.EncodeInt(n) }
func (e encoder) float(f float64)      { _ = e.EncodeFloat64(f) }
func (e encoder) flag(b bool)          { _ = e.EncodeBool(b) }
func (e encoder) kv(k string, n int64) { e.str(k); e.int(n) }

func (e encoder) nils(n int) {
	for range n {
		_ = e.EncodeNil()
	}
}

func (e encoder) ints(v []int) {
	e.array(len(v))
	for _, n := range v {
		e.int(int64(n))
	}
}

// EncodeAdd returns the frame behind the type for a stage.
func EncodeAdd(a Add, stage int) []byte {
	e := newEncoder()
	e.array(addFields)
	e.str(a.ID)
	if stage == 0 {
		e.ints(a.Prompt)
	} else {
		e.ints(make([]int, placeholder))
	}
	e.nils(1)
	e.sampling(a, stage)
	e.nils(1)
	e.float(float64(a.ArrivalNS) / 1e9)
	e.nils(5)
	e.int(0)
	e.int(0)
	e.int(0)
	e.nils(1)
	e.flag(false)
	e.str(a.HTTPID)
	e.nils(2)
	e.flag(false)
	e.info(a, stage)
	e.nils(1)
	return e.b.Bytes()
}

const (
	eosToken  = 151645
	stopToken = 2150 // the talker's
)

// sampling is the sampling parameters as the server's own deployment has them.
func (e encoder) sampling(a Add, stage int) {
	stop := eosToken
	if stage == 0 {
		e.mapping(10)
		e.str("temperature")
		e.float(1)
	} else {
		stop = stopToken
		e.mapping(11)
		e.str("repetition_penalty")
		e.float(1.05)
		e.str("temperature")
		e.float(0.9)
	}
	e.str("stop")
	e.array(0)
	e.str("stop_token_ids")
	e.array(0)
	e.kv("max_tokens", int64(max(len(a.Script), 1)))
	e.kv("output_kind", 1)
	e.str("skip_clone")
	e.flag(true)
	e.kv("_eos_token_id", int64(stop))
	e.str("_all_stop_token_ids")
	e.ints([]int{stop})
	e.str("bad_words")
	e.array(0)
	e.str("skip_reading_prefix_cache")
	e.flag(false)
}

// The names of the entries. Those with mock_ are the fake server's own.
const (
	entryID     = "global_request_id"
	entryFinal  = "omni_final_stage_id"
	entryScript = "mock_script"
	entryFrames = "mock_frames"
	entrySeed   = "mock_seed"
	entryStep   = "mock_step_ns"
)

func (e encoder) info(a Add, stage int) {
	e.mapping(1)
	e.str("entries")
	if stage == 0 {
		e.mapping(6)
	} else {
		e.mapping(2)
	}
	e.entry(entryID, func() { e.array(1); e.str(a.ID) }, nil)
	e.entry(entryStep, nil, func() { e.int(a.StepNS) })
	if stage != 0 {
		return
	}
	e.entry(entryFinal, nil, func() { e.int(int64(a.FinalStage)) })
	e.entry(entryScript, func() { e.ints(a.Script) }, nil)
	e.entry(entryFrames, nil, func() { e.int(int64(a.Frames)) })
	e.entry(entrySeed, nil, func() { _ = e.EncodeUint(a.Seed) })
}

// entry is one of vLLM-Omni's AdditionalInformationEntry.
func (e encoder) entry(name string, list, scalar func()) {
	e.str(name)
	e.mapping(5)
	for _, k := range []string{"tensor_data", "tensor_shape", "tensor_dtype"} {
		e.str(k)
		e.nils(1)
	}
	e.str("list_data")
	e.orNil(list)
	e.str("scalar_data")
	e.orNil(scalar)
}

func (e encoder) orNil(f func()) {
	if f == nil {
		e.nils(1)
		return
	}
	f()
}

// DecodeAdd reads what EncodeAdd made.
func DecodeAdd(b []byte) (Add, error) {
	d := decoder{msgpack.NewDecoder(bytes.NewReader(b))}
	a, err := d.add()
	if err != nil {
		return Add{}, fmt.Errorf("reading an ADD of %d bytes: %w", len(b), err)
	}
	return a, nil
}

type decoder struct{ *msgpack.Decoder }

var errLength = errors.New("wrong number of fields")

// length reads an array's length, at most limit; nil counts as none.
func (d decoder) length(limit int) (int, error) {
	n, err := d.DecodeArrayLen()
	if err == nil && n > limit {
		err = fmt.Errorf("a list of %d, more than %d", n, limit)
	}
	return max(n, 0), err
}

func (d decoder) exactly(want int) error {
	n, err := d.length(want)
	if err == nil && n != want {
		err = fmt.Errorf("%w: %d, want %d", errLength, n, want)
	}
	return err
}

func (d decoder) skip(n int) error {
	for range n {
		if err := d.Skip(); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) ints() ([]int, error) {
	n, err := d.length(maxList)
	if err != nil {
		return nil, err
	}
	var out []int
	for range n {
		v, err := d.DecodeInt()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (d decoder) add() (a Add, err error) {
	if err = d.exactly(addFields); err != nil {
		return a, err
	}
	if a.ID, err = d.DecodeString(); err != nil {
		return a, err
	}
	if a.Prompt, err = d.ints(); err != nil {
		return a, err
	}
	if err = d.skip(3); err != nil {
		return a, err
	}
	arrival, err := d.DecodeFloat64()
	if err != nil {
		return a, err
	}
	a.ArrivalNS = int64(arrival * 1e9)
	if err = d.skip(10); err != nil {
		return a, err
	}
	if a.HTTPID, err = d.DecodeString(); err != nil {
		return a, err
	}
	if err = d.skip(addInfo - 17); err != nil {
		return a, err
	}
	return a, d.info(&a)
}

// info reads {"entries": {name: entry, …}}.
func (d decoder) info(a *Add) error {
	if n, err := d.DecodeMapLen(); err != nil || n != 1 {
		return errors.Join(errLength, err)
	}
	if err := d.Skip(); err != nil {
		return err
	}
	n, err := d.DecodeMapLen()
	if err != nil || n > 64 {
		return errors.Join(errLength, err)
	}
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		if err := d.entry(name, a); err != nil {
			return fmt.Errorf("entry %.40q: %w", name, err)
		}
	}
	return nil
}

func (d decoder) entry(name string, a *Add) error {
	if n, err := d.DecodeMapLen(); err != nil || n != 5 {
		return errors.Join(errLength, err)
	}
	if err := d.skip(7); err != nil { // three pairs and the key list_data
		return err
	}
	var err error
	if name == entryScript {
		a.Script, err = d.ints()
	} else {
		err = d.Skip()
	}
	if err = errors.Join(err, d.skip(1)); err != nil { // the key scalar_data
		return err
	}
	switch name {
	case entryFinal:
		a.FinalStage, err = d.DecodeInt()
	case entryFrames:
		a.Frames, err = d.DecodeInt()
	case entrySeed:
		a.Seed, err = d.DecodeUint64()
	case entryStep:
		a.StepNS, err = d.DecodeInt64()
	default:
		err = d.Skip()
	}
	return err
}

// EncodeAbort returns the frame behind the type: the engine ids.
func EncodeAbort(ids ...string) []byte {
	e := newEncoder()
	e.strs(ids)
	return e.b.Bytes()
}

func (e encoder) strs(v []string) {
	e.array(len(v))
	for _, s := range v {
		e.str(s)
	}
}

// DecodeAbort reads what EncodeAbort made.
func DecodeAbort(b []byte) ([]string, error) {
	d := decoder{msgpack.NewDecoder(bytes.NewReader(b))}
	n, err := d.length(maxList)
	var ids []string
	for ; n > 0 && err == nil; n-- {
		var s string
		if s, err = d.DecodeString(); err == nil {
			ids = append(ids, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading an ABORT of %d bytes: %w", len(b), err)
	}
	return ids, nil
}
