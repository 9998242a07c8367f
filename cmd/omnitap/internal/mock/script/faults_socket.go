package script

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BadFrameForms are the values of the fault bad-frame.
var BadFrameForms = []string{"masked", "rsv1", "rsv2", "opcode", "big-ping", "split-ping", "continuation", "utf8", "long-length"}

// socketFaults are the faults of WebSocket sessions.
func socketFaults() []Fault {
	return []Fault{
		{Name: "fragments", Arg: "N[+ping:TEXT]", Where: "ws", Doc: "every message comes in N frames (empty ones if it is shorter), with a ping between them if asked for", set: setFragments},
		{Name: "ping-every", Arg: "DURATION", Where: "ws", Doc: "the server pings every DURATION", set: setPingEvery},
		flag("no-pong", "ws", "the client's pings are not answered", func(f *Set) *bool { return &f.NoPong }),
		flag("no-close-reply", "ws", "the client's close frame is not answered, the connection stays open", func(f *Set) *bool { return &f.NoCloseReply }),
		{Name: "close", Arg: "CODE|empty|byte[+at:POINT][+reason:TEXT]", Where: "ws", Doc: "a close frame at POINT (default end) with any code from 0 to 65535, an empty or a one-byte payload, then FIN", set: setClose},
		{Name: "bad-frame", Arg: "masked|rsv1|rsv2|opcode|big-ping|split-ping|continuation|utf8|long-length[+at:POINT]", Where: "ws", Doc: "a frame that no server should send, at POINT (default after:1)", set: setBadFrame},
		at("server-half-close", "ws", "FIN at POINT without a close frame, but the client's messages are read on; default after:1", Point{AfterAudio, 1}, func(f *Set) *Point { return &f.HalfCloseAt }),
		{Name: "deaf", Arg: "[POINT][+for:DURATION]", Where: "ws", Doc: "the server reads nothing from its socket from POINT (default after:1) on, for DURATION or for ever, and goes on sending", set: setDeaf},
		{Name: "skip", Arg: "TYPE[/TYPE…]", Where: "ws", Doc: "events of these types are not sent; types may end in *", set: setSkip},
		{Name: "late-done", Arg: "DURATION", Where: "ws", Doc: "the event that ends a turn comes DURATION late", set: setLateDone},
		{Name: "late-audio", Arg: "N[+gap:DURATION][+id:same|none]", Where: "ws", Doc: "N more audio chunks of ten samples follow a cancel or an interruption, DURATION apart (default 10ms), with the response's id or with none", set: setLateAudio},
		count("replay", "N", "ws", "the last N events of the turn before are sent again in front of the next turn's first, byte for byte", -1, func(f *Set) *int { return &f.Replay }),
		count("unknown", "N", "ws", "an event of an unknown type that holds base64 stands before each of a turn's first N audio events", -1, func(f *Set) *int { return &f.Unknown }),
	}
}

func setFragments(f *Set, v string) error {
	a, err := parseArgs(v, "", "ping")
	if err != nil {
		return err
	}
	if f.Fragments, err = parseCount(a[""]); err != nil || f.Fragments < 1 {
		return fmt.Errorf("%q is not a number of frames", a[""])
	}
	if p, ok := a["ping"]; ok {
		if f.FragmentPing = []byte(p); len(p) > 125 {
			return fmt.Errorf("ping of %d bytes", len(p))
		}
	}
	return nil
}

// positive reads a duration above zero.
func positive(v string, to *time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration", v)
	}
	*to = d
	return nil
}

func setPingEvery(f *Set, v string) error { return positive(v, &f.PingEvery) }
func setLateDone(f *Set, v string) error  { return positive(v, &f.LateDone) }

// pointArg reads the key at.
func (a args) pointArg(fallback Point) (Point, error) {
	p, _, err := parsePoint(a["at"], fallback)
	return p, err
}

func setClose(f *Set, v string) error {
	a, err := parseArgs(v, "", "at", "reason")
	if err != nil {
		return err
	}
	switch form := a[""]; form {
	case "empty":
		f.ClosePayload = []byte{}
	case "byte":
		f.ClosePayload = []byte{3}
	default:
		code, err := strconv.ParseUint(form, 10, 16)
		if err != nil {
			return fmt.Errorf("code %q: %w", form, err)
		}
		f.ClosePayload = append(binary.BigEndian.AppendUint16(nil, uint16(code)), a["reason"]...)
	}
	f.CloseAt, err = a.pointArg(Point{Unit: AtEnd})
	return err
}

func setBadFrame(f *Set, v string) error {
	a, err := parseArgs(v, "", "at")
	if err != nil {
		return err
	}
	if f.BadFrame = a[""]; !slices.Contains(BadFrameForms, f.BadFrame) {
		return fmt.Errorf("form %q, want one of %s", f.BadFrame, strings.Join(BadFrameForms, ", "))
	}
	f.BadFrameAt, err = a.pointArg(Point{AfterAudio, 1})
	return err
}

func setDeaf(f *Set, v string) error {
	p, a, err := parsePoint(v, Point{AfterAudio, 1}, "for")
	if err != nil {
		return err
	}
	f.DeafAt = p
	f.DeafFor, err = a.duration("for", Forever)
	return err
}

func setSkip(f *Set, v string) error {
	if f.Skip = strings.Split(v, "/"); v == "" {
		return fmt.Errorf("no type")
	}
	return nil
}

// Skips reports whether events of a type are not sent.
func (f *Set) Skips(kind string) bool {
	return slices.ContainsFunc(f.Skip, func(s string) bool {
		prefix, wild := strings.CutSuffix(s, "*")
		return s == kind || wild && strings.HasPrefix(kind, prefix)
	})
}

func setLateAudio(f *Set, v string) error {
	a, err := parseArgs(v, "", "gap", "id")
	if err != nil {
		return err
	}
	if f.LateAudio, err = parseCount(a[""]); err != nil {
		return err
	}
	if f.LateAudioID = a["id"]; f.LateAudioID != "" && f.LateAudioID != "same" && f.LateAudioID != "none" {
		return fmt.Errorf("id %q, want same or none", f.LateAudioID)
	}
	f.LateAudioGap, err = a.duration("gap", 10*time.Millisecond)
	return err
}
