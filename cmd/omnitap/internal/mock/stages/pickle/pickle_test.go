package pickle

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sample = Dict{
	{"request_id", "chatcmpl-a-01234567"},
	{"stage_id", 2},
	{"engine_outputs_shm", Dict{{"name", "psm_0123abcd"}, {"size", 96000}}},
	{"inline", []byte{0, 255}},
	{"long", strings.Repeat("x", 300)},
	{"metrics", Dict{{"ms", 1.5}}},
	{"numbers", Dict{{"a", 255}, {"b", 256}, {"c", -1}, {"d", 1 << 40}, {"e", true}, {"f", false}, {"g", nil}}},
	{"none", Dict{}},
}

func TestRoundTrip(t *testing.T) {
	b := Encode(sample)
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// What probes look for in the first bytes.
	if !bytes.Contains(b[:40], []byte("\x8c\x0arequest_id\x94\x8c\x13chatcmpl")) {
		t.Errorf("starts %q", b[:40])
	}
	if got.Str("request_id") != "chatcmpl-a-01234567" || got.Int("stage_id") != 2 || got.Str("nothing") != "" {
		t.Error("Str or Int")
	}
}

// The bytes are CPython's own, pickled from the same value (hash of strings that come
// twice would be references there; here none does).
func TestBytesAreCPythons(t *testing.T) {
	const want = "8004952d000000000000007d94288c0a726571756573745f6964948c03782d31948c0873746167655f6964944b028c046e6f6e65944e752e"
	got := hex.EncodeToString(Encode(Dict{{"request_id", "x-1"}, {"stage_id", 2}, {"none", nil}}))
	if got != want {
		t.Errorf("Encode\n got %s\nwant %s", got, want)
	}
}

// Where Python is at hand it reads them too.
func TestPythonReads(t *testing.T) {
	py, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine; TestBytesAreCPythons covers the form")
	}
	cmd := exec.CommandContext(t.Context(), py, "-c", "import pickle,sys; d=pickle.load(sys.stdin.buffer); print(d['stage_id'], d['numbers'], d['engine_outputs_shm']['size'], len(d['long']))")
	cmd.Stdin = bytes.NewReader(Encode(sample))
	out, err := cmd.CombinedOutput()
	want := "2 {'a': 255, 'b': 256, 'c': -1, 'd': 1099511627776, 'e': True, 'f': False, 'g': None} 96000 300\n"
	if err != nil || string(out) != want {
		t.Errorf("Python says %s, %v", out, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	b := Encode(sample)
	for i := range b {
		if _, err := Decode(b[:i]); !errors.Is(err, ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", i, len(b), err)
		}
	}
	for _, s := range []string{"\x80\x04N.", "\x80\x04cos\nsystem\n.", "u.", "s.", "(u.", "}(u.", "}(NNu.", "}(\x8c\x01a(u."} {
		if d, err := Decode([]byte(s)); err == nil && s != "}(u." {
			t.Errorf("%q = %v", s, d)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(sample))
	f.Add([]byte("}(s."))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Encode(d))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Error(diff)
		}
	})
}
