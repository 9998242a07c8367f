package verify_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

// lacking are the names of the fields that were not derived.
func lacking(res *verify.Result) (fields []string) {
	for _, m := range res.NotDerivable {
		fields = append(fields, m.Field)
	}
	return slices.Compact(fields)
}

// Payloads are not kept: their hashes, and nothing else, cannot be derived.
func TestHashesAloneAreNotDerivable(t *testing.T) {
	for _, run := range []string{"demo", "served"} {
		dir := unpack(t, run)
		seal(t, dir)
		res := mustVerify(t, dir, verify.Options{})
		if !res.OK() {
			t.Errorf("%s: findings:%s", run, list(res))
		}
		if got, want := lacking(res), []string{"audio.sha256", "request_sha256", "text_sha256"}; !slices.Equal(got, want) {
			t.Errorf("%s: not derivable: %v, want %v", run, got, want)
		}
	}
}

// What an older program wrote is no worse for it: what its events do not tell is listed
// with the reason, and nothing of it is a difference.
func TestOlderEvents(t *testing.T) {
	dir := unpack(t, "older")
	seal(t, dir)
	res := mustVerify(t, dir, verify.Options{})
	if !res.OK() {
		t.Errorf("findings:%s", list(res))
	}
	got := lacking(res)
	for _, field := range []string{
		"audible_s", "audio.empty_events", "bytes_up", "client_wait_ms", "critical_path[].ms", "input.pace", "stages[].cpu_ms", "stages[].steps",
		"stages[].starved_ms", "t_in_alternatives.*", "t_in_server_offset", "transfers[].misses", "transfers[].read_ms", "transfers[].wait_ms",
	} {
		if !slices.Contains(got, field) {
			t.Errorf("%s is not listed as not derivable: %v", field, got)
		}
		if res.Compared[field] > 0 && field != "bytes_up" && field != "critical_path[].ms" {
			t.Errorf("%s was compared %d times", field, res.Compared[field])
		}
	}
	for _, field := range []string{"playback.stall_ms", "stages[].wait_ms", "transfers[].end_ns", "rtf_audible"} {
		if res.Compared[field] < 5 {
			t.Errorf("%s was compared %d times", field, res.Compared[field])
		}
	}
}

// Whoever takes the form out of the metadata, so that less is derived, is found, and so
// is who says that there is more than there is.
func TestFormIsHeldToTheEvents(t *testing.T) {
	newer, older := demo(t), unpack(t, "older")
	edit(t, newer, rundir.MetadataFile, once(`"event_form": 2`, `"event_form": 1`))
	edit(t, older, rundir.MetadataFile, once(`"schema": 1`, `"schema": 1, "event_form": 2`))
	for dir, want := range map[string]string{newer: "heard_first is of event_form 2, metadata.json says 1", older: "audible_s: "} {
		res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
		if res.OK() || find(res, func(f *verify.Finding) bool { return f.Level == verify.Error && strings.Contains(f.String(), want) }) == nil {
			t.Errorf("nothing says %q:%s", want, list(res))
		}
	}
}

// number reads the integer behind a key in a line.
func number(t *testing.T, line, key string) int64 {
	t.Helper()
	m := regexp.MustCompile(`"` + key + `":(\d+)`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no %s in %s", key, line)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// with is the demo's run with something in it that the demo's server does not do: the
// record of the first chat changed, and events ahead of its end. Each of these is how
// many microseconds since t_in it is, and its word and members.
func with(t *testing.T, record func(line string) string, lines ...string) (dir string) {
	t.Helper()
	dir = demo(t)
	first, _, _ := strings.Cut(string(one(t, dir, requests, `"flow":"chat"`)), "\n")
	id := regexp.MustCompile(`"request_id":"[^"]*"`).FindString(first)
	in := number(t, first, "t_in")
	run := regexp.MustCompile(`"run_id":"[^"]*"`).FindString(first)
	var text strings.Builder
	for _, l := range lines {
		at, members, _ := strings.Cut(l, " ")
		us, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, `{%s,%s,"session_id":null,"stage":null,"attempt":1,"mono_ns":%d,"wall_ns":null,"node":null,"device":null,"batch":null,%s}`+"\n",
			run, id, in+1000*us, members)
	}
	edit(t, dir, events, func(s string) string {
		at := strings.Index(s, `"event":"terminal"`)
		for !strings.Contains(lineAt(s, at), id) {
			at += 1 + strings.Index(s[at+1:], `"event":"terminal"`)
		}
		start := strings.LastIndex(s[:at], "\n") + 1
		return s[:start] + text.String() + s[start:]
	})
	edit(t, dir, requests, line(`"flow":"chat"`, 1, record))
	recount(t, dir)
	return dir
}

// lineAt is the line of a text that an index lies in.
func lineAt(s string, at int) string {
	start := strings.LastIndex(s[:at], "\n") + 1
	end := strings.Index(s[at:], "\n")
	return s[start : at+end]
}

// What the demo's server never does is derived, too, and every part of it is needed.
func TestRareEvents(t *testing.T) {
	const none = `"chunk_id":null,"bytes":null,"status":null`
	cases := map[string]struct {
		events []string
		record func(line string) string
		field  string                         // that was compared
		tamper map[string]func(string) string // of events
		forge  map[string]func(string) string // of records
	}{
		"reasoning": {
			events: []string{
				`2500 "event":"reasoning_chunk","chunk_id":0,"bytes":5,"status":null,"chars":3`,
				`2600 "event":"reasoning_chunk","chunk_id":1,"bytes":2,"status":null,"chars":2`,
			},
			record: once(`"reasoning":null`, `"reasoning":{"first_ms":2.5,"units":2,"chars":5}`),
			field:  "reasoning.chars",
			tamper: map[string]func(string) string{
				"reasoning.chars":    bump(`"chars":`, 1),
				"reasoning_chunk 0":  line(`"event":"reasoning_chunk"`, 1, gone),
				"reasoning.units":    line(`"event":"reasoning_chunk"`, 2, gone),
				"reasoning.first_ms": line(`"event":"reasoning_chunk"`, 1, bump(`"mono_ns":`, 1)),
			},
		},
		"sound ahead of its chunk": {
			events: []string{`3000 "event":"first_sound",` + none, `900000 "event":"last_sound",` + none},
			record: func(l string) string { return l + " " },
			field:  "incremental",
			tamper: map[string]func(string) string{
				"a second first_sound": line(`"event":"first_sound"`, 1, func(l string) string { return l + l }),
			},
		},
		"a text taken back": {
			events: []string{`2500 "event":"text_reset","chunk_id":99,"bytes":null,"status":null`},
			record: func(l string) string { return l + " " },
			field:  "text_bytes",
			tamper: map[string]func(string) string{"text_bytes": once(`"event":"text_reset","chunk_id":99`, `"event":"text_reset","chunk_id":1`)},
		},
		"silence": {
			events: []string{`1 "event":"audio_stall","chunk_id":null,"bytes":null,"status":"content"`},
			record: once(`"flags":\[`, `"flags":["audio_stall"`),
			field:  "flags.audio_stall",
			forge:  map[string]func(string) string{"flags.audio_stall: false": once(`"audio_stall"`, ``)},
		},
		"a deadline that passed": {
			events: []string{`1 "event":"deadline","chunk_id":null,"bytes":null,"status":"before_headers"`},
			record: once(`"flags":\[`, `"flags":["deadline_passed"`),
			field:  "flags.deadline_passed",
			tamper: map[string]func(string) string{"flags.deadline_passed": line(`"event":"deadline"`, 1, gone)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			res := mustVerify(t, with(t, c.record, c.events...), verify.Options{AllowUnsealed: true})
			if !res.OK() || res.Compared[c.field] == 0 {
				t.Errorf("%s was compared %d times, findings:%s", c.field, res.Compared[c.field], list(res))
			}
			for file, all := range map[string]map[string]func(string) string{events: c.tamper, requests: c.forge} {
				for want, change := range all {
					dir := with(t, c.record, c.events...)
					edit(t, dir, file, change)
					recount(t, dir)
					res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
					if find(res, func(f *verify.Finding) bool { return f.Level == verify.Error && strings.Contains(f.String(), want) }) == nil {
						t.Errorf("nothing says %q:%s", want, list(res))
					}
				}
			}
		})
	}
}
