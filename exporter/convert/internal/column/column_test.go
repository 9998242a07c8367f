package column

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func TestName(t *testing.T) {
	for path, want := range map[string]string{
		"ttfa_ms":                        "ttfa_ms",
		"points.t_in":                    "t_in_ns",
		"offsets.t_in":                   "t_in_offset_bytes",
		"audio_gap_ms.p99":               "audio_gap_p99_ms",
		"audio_gap_ms.cv":                "audio_gap_cv",
		"own_delay_us.n":                 "own_delay_n",
		"own_delay_us.max":               "own_delay_max_us",
		"playback.vllm_omni.max_late_ms": "playback_vllm_omni_max_late_ms",
		"audio.sample_rate":              "audio_sample_rate_hz",
		"from":                           "from_stage",
		"start.wall_ns":                  "start_wall_ns",
		"quality.failed":                 "quality_failed",
	} {
		if got := Name(strings.Split(path, ".")); got != want {
			t.Errorf("Name(%s) = %q, want %q", path, got, want)
		}
	}
}

type key struct {
	Dir string `json:"dir"`
}

type part struct {
	Count int      `json:"count"`
	Ratio *float64 `json:"ratio"`
}

type line struct {
	Text    timeline.Text     `json:"text"`
	ID      string            `json:"id"`
	Maybe   string            `json:"maybe,omitempty"`
	Number  timeline.Number   `json:"number"`
	Part    *part             `json:"part"`
	Parts   []part            `json:"parts"`
	Words   []string          `json:"words"`
	Reasons map[string]string `json:"reasons"`
	Any     map[string]any    `json:"any"`
	Unsent  int               `json:"-"`
	Flag    *bool             `json:"flag"`
	Big     uint64            `json:"big"`
}

type row struct {
	key
	*line
}

func TestOf(t *testing.T) {
	var got []string
	for _, c := range Of[row]("list[].") {
		null := ""
		if c.Nullable {
			null = "?"
		}
		got = append(got, c.Name+" "+string(c.Kind)+null+" "+c.Source)
	}
	want := []string{
		"dir text dir", "text text? list[].text", "id text list[].id", "maybe text? list[].maybe", "number int64? list[].number",
		"part_count int64? list[].part.count", "part_ratio float64? list[].part.ratio", "words list<text>? list[].words",
		"reasons map<text,text>? list[].reasons", "any json? list[].any", "flag bool? list[].flag", "big int64 list[].big",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Of (-want +got):\n%s", diff)
	}
}

// What is missing is null, and what is there and empty is not.
func TestRead(t *testing.T) {
	half, no := 0.5, false
	cols := Of[row]("")
	got := Read(nil, cols, &row{key{"d"}, &line{}})
	want := []Value{{OK: true, Text: "d"}, {}, {OK: true}, {}, {}, {}, {}, {}, {}, {}, {}, {OK: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read of an empty line (-want +got):\n%s", diff)
	}
	got = Read(got[:0], cols, &row{key{"d"}, &line{
		Text: "t", Maybe: "m", Number: timeline.N(0), Part: &part{Ratio: &half}, Words: []string{},
		Reasons: map[string]string{"a": "b"}, Any: map[string]any{"y": 1, "x": nil}, Flag: &no, Big: 7,
	}})
	want = []Value{
		{OK: true, Text: "d"},
		{OK: true, Text: "t"},
		{OK: true},
		{OK: true, Text: "m"},
		{OK: true},
		{OK: true},
		{OK: true, Float: 0.5},
		{OK: true, List: []string{}},
		{OK: true, Map: map[string]string{"a": "b"}},
		{OK: true, Text: `{"x":null,"y":1}`},
		{OK: true},
		{OK: true, Int: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}
