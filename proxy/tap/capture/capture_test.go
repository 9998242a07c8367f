package capture

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readAll(in string) (out []Event, err error) {
	r, _, err := NewReader(strings.NewReader(in))
	if err != nil {
		return nil, err
	}
	for {
		e, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if e.Data = bytes.Clone(e.Data); e.End != "" {
			e.Data = nil
		}
		out = append(out, e)
	}
}

func TestWriteAndRead(t *testing.T) {
	var b strings.Builder
	mono := int64(7)
	w, err := NewWriter(&b, Header{Flow: "chat", Stamp: "kernel", T0MonoNS: &mono})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Data(0, 'c', []byte("GET /\x00\xff")), w.Data(5, 's', []byte("x")), w.End(6, 's', "fin"), w.End(7, 'c', "rst")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := readAll(b.String())
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{{0, 'c', []byte("GET /\x00\xff"), ""}, {5, 's', []byte("x"), ""}, {6, 's', nil, "fin"}, {7, 'c', nil, "rst"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	_, h, err := NewReader(strings.NewReader(`{"capture":1,"flow":"x","mine":{"a":1}}`))
	if err != nil || string(h.Rest["mine"]) != `{"a":1}` {
		t.Errorf("unknown keys are lost: %v %v", h, err)
	}
}

func TestDamage(t *testing.T) {
	head := `{"capture":1}` + "\n"
	good := `{"t_ns":1,"dir":"c","b64":"AA=="}` + "\n"
	for _, bad := range []string{
		`{"t_ns":2,"dir":"c","b6`, `{"t_ns":2,"dir":"x","b64":"AA=="}`, `{"dir":"c","b64":"AA=="}`, `{"t_ns":2,"dir":"c"}`, `{"t_ns":2,"dir":"c","event":"huh"}`,
		`{"t_ns":2,"dir":"c","b64":"*"}`, `{"t_ns":2,"dir":"c","b64":"AA==","event":"fin"}`,
	} {
		got, err := readAll(head + good + bad + "\n")
		var d *DamagedError
		if len(got) != 1 || !errors.As(err, &d) || d.Line != 3 {
			t.Errorf("%s: %d events, %v", bad, len(got), err)
		}
	}
	for _, none := range []string{"", "{}", "x", `{"capture":2}`, "[1]"} {
		if _, err := readAll(none); !errors.Is(err, ErrNoCapture) {
			t.Errorf("%q: %v", none, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(`{"capture":1}` + "\n" + `{"t_ns":1,"dir":"c","b64":"AA=="}` + "\n")
	f.Fuzz(func(_ *testing.T, in string) {
		_, _ = readAll(in)
	})
}
