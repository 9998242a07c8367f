package scan_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/verify/internal/scan"
)

// build makes of a text what encoding/json makes of it, by the Reader alone.
func build(r *scan.Reader) any {
	switch r.Peek() {
	case scan.Object:
		m := map[string]any{}
		for r.Object(); ; {
			key, more := r.Key()
			if !more {
				return m
			}
			name := text(key)
			m[name] = build(r)
		}
	case scan.Array:
		list := []any{}
		for r.Array(); r.Element(); {
			list = append(list, build(r))
		}
		return list
	case scan.String:
		return text(r.String())
	case scan.Number:
		text, _ := r.Literal()
		f, _ := strconv.ParseFloat(string(text), 64)
		return f
	case scan.Bool:
		from := r.Pos()
		r.Word()
		return r.Pos()-from == len("true")
	default:
		r.Word()
		return nil
	}
}

// text is a string as encoding/json has it: with U+FFFD for what is no UTF-8.
func text(b []byte) string { return string([]rune(string(b))) }

var texts = []string{
	`{}`, `[]`, ` { "a" : 1 , "b":[1,2,{"c":null}] } `, `"x"`, `-0`, `0.5e-3`, `1E+9`, `true`, `false`, `null`, `[[],{}]`,
	`{"a":"\u00e9\ud83d\ude00\n\"\\"}`, `"\ud800"`, "\"\xff\"", `{"a":1,"a":2}`, `[1,[2,[3]]]`,
	``, ` `, `{`, `[`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `01`, `-`, `+1`, `1.`, `.5`, `1e`, `1e+`, `nul`, `truex`, `"a`, `"\x"`,
	"\"\n\"", `"\u12"`, `{"a":1}x`, `{} {}`, `{"a" 1}`, `[1 2]`, `{1:2}`, `nullnull`, `tru`, "\x00", `"\`, `"\"`, `[}`, `{]`,
}

func same(t *testing.T, text []byte) {
	t.Helper()
	r := scan.New(text)
	r.Skip()
	err := r.End()
	if want := json.Valid(text); want != (err == nil) {
		t.Fatalf("%q: error %v, encoding/json says %t", text, err, want)
	}
	if err != nil {
		return
	}
	var want any
	if err := json.Unmarshal(text, &want); err != nil {
		return // a number that no float holds
	}
	r.Reset(text)
	got := build(r)
	if r.End() != nil || !reflect.DeepEqual(want, got) { // go-cmp takes for ever over deep ones
		t.Fatalf("%q: %v, encoding/json has %#v, scan %#v", text, r.Err(), want, got)
	}
}

func TestReadsWhatEncodingJSONReads(t *testing.T) {
	for _, text := range texts {
		same(t, []byte(text))
	}
	same(t, []byte(strings.Repeat("[", 10000)+strings.Repeat("]", 10000)))
	same(t, []byte(strings.Repeat("[", 10001)+strings.Repeat("]", 10001)))
	same(t, []byte(strings.Repeat(`{"a":`, 20000)))
}

func FuzzReader(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { same(t, text) })
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-1": -1, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		r := scan.New([]byte(text))
		if got := r.Int(); got != want || r.End() != nil {
			t.Errorf("Int of %s = %d, %v", text, got, r.Err())
		}
	}
	for _, text := range []string{"9223372036854775808", "1.0", "1e3", `"1"`, "null", "", "--1", strings.Repeat("9", 100)} {
		r := scan.New([]byte(text))
		r.Int()
		if r.End() == nil {
			t.Errorf("Int of %s has no error", text)
		}
	}
}

// The first error stays, and nothing behind it is read.
func TestFirstErrorStays(t *testing.T) {
	r := scan.New([]byte(`{"a":x,"b":1}`))
	r.Object()
	r.Key()
	r.Skip()
	first := r.Err()
	if _, more := r.Key(); more || r.Peek() != scan.None || r.Int() != 0 || r.String() != nil || r.Element() {
		t.Error("it reads on behind an error")
	}
	r.Object()
	r.Word()
	if first == nil || r.End() == nil || r.Err().Error() != first.Error() || !strings.Contains(first.Error(), "byte 6") {
		t.Errorf("error %v, then %v, want byte 6", first, r.Err())
	}
}

func BenchmarkSkip(b *testing.B) {
	text := bytes.Repeat([]byte(`{"run_id":"20261130T123347-43fec318","mono_ns":433353861949,"offset":null,"x":[1.5,true]},`), 100)
	text = append(append([]byte{'['}, text[:len(text)-1]...), ']')
	b.SetBytes(int64(len(text)))
	var r scan.Reader
	for b.Loop() {
		r.Reset(text)
		if r.Skip(); r.End() != nil {
			b.Fatal(r.Err())
		}
	}
}
