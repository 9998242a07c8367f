package rundir

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// reference encodes an event with encoding/json.
func reference(t *testing.T, e *timeline.Event) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		t.Fatalf("encoding the reference: %v", err)
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// fill gives every field a value that is not its zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("v-" + v.Type().Field(i).Name)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(1000 + i))
		case reflect.Uint64:
			f.SetUint(uint64(1000 + i))
		case reflect.Struct:
			f.Set(reflect.ValueOf(timeline.N(int64(1000 + i))))
		default:
			t.Fatalf("field %s has a kind this test does not know: teach it and AppendEvent", v.Type().Field(i).Name)
		}
	}
}

// Every field alone, none, and all of them: a field that is added to the type
// and forgotten in AppendEvent fails here.
func TestAppendEventEveryField(t *testing.T) {
	var full timeline.Event
	fill(t, reflect.ValueOf(&full).Elem())
	cases := map[string]timeline.Event{"none": {}, "all": full}
	typ := reflect.TypeFor[timeline.Event]()
	for i := range typ.NumField() {
		var one timeline.Event
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		cases[typ.Field(i).Name] = one
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			got := string(AppendEvent([]byte("before"), &e))
			if diff := cmp.Diff("before"+reference(t, &e), got); diff != "" {
				t.Errorf("AppendEvent (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendEventIntegers(t *testing.T) {
	e := timeline.Event{MonoNS: math.MaxInt64, WallNS: timeline.N(math.MinInt64), ChunkID: timeline.N(-1), Rate: timeline.N(24000)}
	if got, want := string(AppendEvent(nil, &e)), reference(t, &e); got != want {
		t.Errorf("AppendEvent = %s, want %s", got, want)
	}
}

func FuzzAppendEvent(f *testing.F) {
	for _, s := range []string{
		"", "chatcmpl-1", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "<&>", "é世𝄞", "\u2028\u2029", "\xff\xc3", "a\xf0\x9d\x84", "\ufffd",
	} {
		f.Add(s, s, int64(1))
	}
	f.Fuzz(func(t *testing.T, id, node string, n int64) {
		e := timeline.Event{RequestID: id, Node: timeline.Text(node), Event: "output_chunk", Bytes: timeline.N(n), Samples: timeline.N(n)}
		if got, want := string(AppendEvent(nil, &e)), reference(t, &e); got != want {
			t.Errorf("AppendEvent = %q, want %q", got, want)
		}
	})
}

func TestAppendRecord(t *testing.T) {
	r := &timeline.Record{RequestID: "a<b>", Flow: "chat"}
	got, err := AppendRecord([]byte("x"), r)
	if err != nil {
		t.Fatal(err)
	}
	if want := `x{"schema":0,`; !strings.HasPrefix(string(got), want) {
		t.Errorf("AppendRecord = %s, want it to begin with %s", got, want)
	}
	if !strings.Contains(string(got), `"request_id":"a<b>"`) || bytes.HasSuffix(got, []byte{'\n'}) {
		t.Errorf("AppendRecord = %q, want no HTML escapes and no line feed", got)
	}
	nan := math.NaN()
	got, err = AppendRecord([]byte("x"), &timeline.Record{RTF: &nan})
	if err == nil || string(got) != "x" {
		t.Errorf("AppendRecord with NaN = %q, %v, want the slice as it was and an error", got, err)
	}
}

// chunkEvent is what a busy stream writes most.
func chunkEvent() timeline.Event {
	return timeline.Event{
		RunID: "20260301T120000-5f3a", RequestID: "chatcmpl-7f3a9c21b4d84e0f", ChunkID: timeline.N(417), Event: "output_chunk",
		MonoNS: 81_234_567_890_123, WallNS: timeline.N(1_772_000_000_123_456_789), Node: "gpu-host-3", Bytes: timeline.N(7680), Offset: timeline.N(3_210_987),
		Samples: timeline.N(3840), Rate: timeline.N(24000), Channels: timeline.N(1),
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	e := chunkEvent()
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEvent(buf[:0], &e)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkEncodeRecord(b *testing.B) {
	r := timeline.Record{Schema: 1, RequestID: "chatcmpl-7f3a9c21b4d84e0f", Flow: "chat", Audio: &timeline.Audio{}}
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		if err := encodeLine(&buf, &r); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(buf.Len()))
}
