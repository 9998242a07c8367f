package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// errorForms are the ways in which an error can come inside a 200.
var errorForms = []string{"native", "event", "string", "json"}

// eventFaults are the faults of the events of a stream and of answers.
func eventFaults() []Fault {
	return []Fault{
		{Name: "role-only", Arg: "[on|off]", Where: "chat", Doc: "a role-only delta comes first; without this fault as the real server does it (on for vllm-omni and openai text, off for sglang-omni)", set: setRole},
		{Name: "empty-audio", Arg: "[null/empty/header]", Where: "audio", Doc: "audio events without samples before the first real one: payload null, \"\" or a bare WAV header; default all three", set: setEmpty},
		flag("no-audio", "all", "no audio although it was asked for", func(f *Set) *bool { return &f.NoAudio }),
		flag("no-text", "chat", "no text deltas", func(f *Set) *bool { return &f.NoText }),
		flag("no-done", "sse", "the end marker ([DONE], speech.audio.done) is missing", func(f *Set) *bool { return &f.NoDone }),
		flag("double-done", "sse", "the end marker comes twice", func(f *Set) *bool { return &f.DoubleDone }),
		flag("after-done", "sse", "one more text event (speech: audio event) follows the end marker", func(f *Set) *bool { return &f.AfterDone }),
		flag("unterminated", "sse", "the last event lacks its blank line", func(f *Set) *bool { return &f.Unterminated }),
		flag("no-finish", "chat", "finish_reason stays null", func(f *Set) *bool { return &f.NoFinish }),
		flag("empty-finish", "chat", "finish_reason is the empty string", func(f *Set) *bool { return &f.EmptyFinish }),
		flag("no-space", "sse", "no space behind \"data:\"", func(f *Set) *bool { return &f.NoSpace }),
		flag("bom", "sse", "the stream starts with a byte order mark", func(f *Set) *bool { return &f.BOM }),
		flag("multi-line", "sse", "the JSON of an event is spread over up to three data lines", func(f *Set) *bool { return &f.MultiLine }),
		count("huge", "BYTES", "sse", "the first event is padded to a line of at least BYTES", -1, func(f *Set) *int { return &f.Huge }),
		{Name: "bad-base64", Arg: "[N][+form:star|urlsafe|unpadded|newline]", Where: "sse", Doc: "the payload of audio chunk N (from 1, default 1) holds a * (default), is in the URL alphabet, lacks its padding, or holds an escaped line feed", set: setBase64},
		count("bad-json", "[N]", "sse", "event N (from 1) is cut in the middle of its JSON", 1, func(f *Set) *int { return &f.BadJSON }),
		{Name: "error", Arg: "[POINT][+form:native|event|string|json]", Where: "all", Doc: "an error inside a 200: native ends as the dialect fails (event, or cut body of raw audio), event names it in an event: line, string has the error as a string, json is a JSON body with status 200", set: setError},
		{Name: "content-type", Arg: "TYPE", Where: "all", Doc: "the answer's Content-Type", set: setContentType},
	}
}

func setBase64(f *Set, v string) error {
	a, err := parseArgs(v, "", "form")
	if err != nil {
		return err
	}
	if f.BadBase64, err = parseCount(cmp.Or(a[""], "1")); err != nil {
		return err
	}
	forms := []string{"star", "urlsafe", "unpadded", "newline"}
	if f.Base64Form = cmp.Or(a["form"], forms[0]); !slices.Contains(forms, f.Base64Form) {
		return fmt.Errorf("form %q, want one of %s", f.Base64Form, strings.Join(forms, ", "))
	}
	return nil
}

func setRole(f *Set, v string) error {
	on := v != "off"
	f.Role = &on
	if v != "" && v != "on" && v != "off" {
		return fmt.Errorf("value %q, want on or off", v)
	}
	return nil
}

func setEmpty(f *Set, v string) error {
	forms := []string{"null", "empty", "header"}
	if v == "" {
		f.Empty = forms
		return nil
	}
	f.Empty = strings.Split(v, "/")
	for _, form := range f.Empty {
		if !slices.Contains(forms, form) {
			return fmt.Errorf("form %q, want null, empty or header", form)
		}
	}
	return nil
}

func setError(f *Set, v string) error {
	p, a, err := parsePoint(v, Point{AfterAudio, 2}, "form")
	if err != nil {
		return err
	}
	f.ErrorAt, f.ErrorForm = p, cmp.Or(a["form"], "native")
	if !slices.Contains(errorForms, f.ErrorForm) {
		return fmt.Errorf("form %q, want one of %s", f.ErrorForm, strings.Join(errorForms, ", "))
	}
	return nil
}

func setContentType(f *Set, v string) error {
	if v == "" || strings.ContainsAny(v, "\r\n") {
		return fmt.Errorf("bad type %q", v)
	}
	f.ContentType = v
	return nil
}
