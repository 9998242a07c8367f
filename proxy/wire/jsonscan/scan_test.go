package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGet(t *testing.T) {
	var d Doc
	in := `{"a":[1,{"b":"x\u00e9\n\ud83d\ude00y"},null],"n":-12,"t":true,"\u0061b":"k","a2":{},"dup":1,"dup":2, "s":"plain"}`
	if err := d.Parse([]byte(in)); err != nil {
		t.Fatal(err)
	}
	r := d.Root()
	if got, want := r.Get("a").Index(1).Get("b").Str(), "x\u00e9\n\U0001F600y"; got != want {
		t.Errorf("a.1.b = %q, want %q", got, want)
	}
	if n, ok := r.Get("n").Int(); n != -12 || !ok {
		t.Errorf("n = %d %v", n, ok)
	}
	if n, _ := r.Get("dup").Int(); n != 2 {
		t.Errorf("of two members with one name the last counts, got %d", n)
	}
	if got := r.Get("ab").Str(); got != "k" {
		t.Errorf("escaped name: %q", got)
	}
	if !r.Get("t").True() || r.Get("a").Index(2).There() || r.Get("none").Get("x").Kind() != Missing {
		t.Error("true, null or a missing member is misread")
	}
	if s := r.Get("s"); !s.Plain() || r.Get("a").Index(1).Get("b").Plain() {
		t.Error("Plain is wrong")
	}
	if r.Get("a").Len() != 3 || r.Len() != 8 {
		t.Errorf("Len: %d, %d", r.Get("a").Len(), r.Len())
	}
}

func TestSpaced(t *testing.T) {
	var d Doc
	for in, want := range map[string]bool{`{"a": 1}`: true, `{"a":1}`: false, `[]`: false} {
		if err := d.Parse([]byte(in)); err != nil || d.Spaced() != want {
			t.Errorf("Spaced(%s) = %v (%v), want %v", in, d.Spaced(), err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	var d Doc
	for _, in := range []string{
		"", "{", `{"a"}`, `{"a":}`, `{"a":1,}`, "[1,]", "01", "1.", "-", "1e", "tru", `"\x"`, `"\u12"`, "\"\x01\"", "1 2", `{1:2}`,
		strings.Repeat("[", 300) + strings.Repeat("]", 300), "\"a\nb\"", "nul", "{\"a\":\"b", "+1", "NaN",
	} {
		if err := d.Parse([]byte(in)); err == nil {
			t.Errorf("Parse(%q) was taken", in)
		}
		if d.Root().Kind() != Missing {
			t.Errorf("Parse(%q) failed and left values", in)
		}
	}
}

// plain turns a Value into what encoding/json would give.
func plain(v Value) any {
	switch v.Kind() {
	case Object:
		m := map[string]any{}
		for c := range v.All() {
			n := c.node()
			m[string(unescape(nil, v.d.b[n.keyAt:n.keyEnd]))] = plain(c)
		}
		return m
	case Array:
		a := []any{}
		for c := range v.All() {
			a = append(a, plain(c))
		}
		return a
	case String:
		return v.Str()
	case Bool:
		return v.True()
	case Number:
		return json.Number(v.Raw())
	default:
		return nil
	}
}

func FuzzAgainstStandardLibrary(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,{"b":"x\u00e9\ud83d\ude00"}]}`, `"\ud800"`, `[true,false,null]`, ` {"a" : "b"} `, `"\/\b"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.Count(in, []byte("[")) > 100 || bytes.Count(in, []byte("{")) > 100 {
			return // the bounds on depth differ
		}
		var d Doc
		err := d.Parse(in)
		if (err == nil) != json.Valid(in) {
			t.Fatalf("Parse(%q) = %v, the standard library says valid %v", in, err, json.Valid(in))
		}
		if err != nil || !json.Valid(in) || !validUTF8(in) {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(in))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, plain(d.Root())); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	})
}

func validUTF8(b []byte) bool { return strings.ToValidUTF8(string(b), "") == string(b) }

func BenchmarkChatEvent(b *testing.B) {
	in := []byte(`{"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"` +
		strings.Repeat("A", 6400) + `"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0},"metrics":{},"modality":"audio"}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	var d Doc
	for b.Loop() {
		if d.Parse(in) != nil {
			b.Fatal("refused")
		}
	}
}
