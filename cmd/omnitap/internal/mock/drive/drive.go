// Package drive plays the client of the WebSocket flows: one realistic session
// each, against a URL behind which the mock or a proxy in front of it stands.
//
//	for _, s := range drive.Sessions() {
//		err := s.Run(ctx, "http://127.0.0.1:8091")
//	}
//
// A session lasts well under a second, speaks one or two turns with input at
// about the pace of a microphone, and is an error unless it got what it needs.
// It is no load generator and knows no other server than the mock.
package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
)

// Session is one session of a flow.
type Session struct {
	// Name says what it is, Flow is the mock's name of the flow.
	Name, Flow string
	// Turns is the number of turns that it takes.
	Turns int
	// Run plays it against a base URL such as http://host:port.
	Run func(ctx context.Context, baseURL string) error
}

// fields is a JSON object whose order does not matter.
type fields map[string]any

// plan is a session as data.
type plan struct {
	name, flow, path, script string
	turns                    int
	play                     func(*client)
}

// Sessions returns one session of each flow.
func Sessions() []Session {
	out := make([]Session, 0, len(plans))
	for _, p := range plans {
		out = append(out, Session{Name: p.name, Flow: p.flow, Turns: p.turns, Run: p.run})
	}
	return out
}

// client is one connection; the first error stays and makes the rest void.
type client struct {
	ws    *websocket.Conn
	err   error
	audio int // bytes of audio, base64 decoded
	seen  map[string]int
}

// run dials and plays a session.
func (p *plan) run(ctx context.Context, baseURL string) error {
	u, err := url.Parse(baseURL + p.path)
	if err != nil {
		return fmt.Errorf("reading the url: %w", err)
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	header := http.Header{"X-Mock-Script": {p.script}}
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, u.String(), header)
	if err != nil {
		return fmt.Errorf("%s: dialing: %w", p.name, err)
	}
	_ = resp.Body.Close() // empty
	defer func() { _ = ws.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = ws.Close() })
	defer stop()
	c := &client{ws: ws, seen: map[string]int{}}
	p.play(c)
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.name, errors.Join(c.err, ctx.Err()))
}

// send writes a JSON message.
func (c *client) send(kind string, f fields) {
	if c.err != nil {
		return
	}
	m := fields{"type": kind}
	maps.Copy(m, f)
	if err := c.ws.WriteJSON(m); err != nil {
		c.err = fmt.Errorf("sending %s: %w", kind, err)
	}
}

// expect reads until an event of a type came.
func (c *client) expect(kind string) {
	for c.err == nil {
		op, data, err := c.ws.ReadMessage()
		if err != nil {
			c.err = fmt.Errorf("waiting for %s, %d bytes of audio so far: %w", kind, c.audio, err)
			return
		}
		if op == websocket.BinaryMessage {
			c.audio += len(data)
			c.seen["binary"]++
			continue
		}
		var f fields
		if err := json.Unmarshal(data, &f); err != nil {
			c.err = fmt.Errorf("reading an event: %w", err)
			return
		}
		got, _ := f["type"].(string)
		c.seen[got]++
		c.count(got, f)
		if got == kind {
			return
		}
		if got == "error" {
			c.err = fmt.Errorf("the server says %s", data)
		}
	}
}

// count adds up the audio of an event: it is in a field of one of four names.
func (c *client) count(kind string, f fields) {
	if !strings.Contains(kind, "audio.") {
		return
	}
	for _, key := range []string{"delta", "audio", "data", "audio_b64"} {
		if s, ok := f[key].(string); ok && kind != "response.audio_transcript.delta" {
			c.audio += len(s) / 4 * 3
		}
	}
}

// needAudio is an error unless audio came since the last call.
func (c *client) needAudio() {
	if c.err == nil && c.audio == 0 {
		c.err = errors.New("no audio came")
	}
	c.audio = 0
}

// need is an error unless events of a type came.
func (c *client) need(kinds ...string) {
	for _, k := range kinds {
		if c.err == nil && c.seen[k] == 0 {
			c.err = fmt.Errorf("no %s came", k)
		}
	}
}

const inputRate = 16000 // Hz, s16le mono

// speak appends ms of sound, or of silence, in parts of 100 ms at ten times
// the pace of a microphone.
func (c *client) speak(ms int, kind string, more func(i int) fields) {
	part := tone.Samples(tone.Spec{Kind: kind, Rate: inputRate, Channels: 1, Frames: inputRate / 10})
	for i := range ms / 100 {
		f := fields{"audio": part}
		if more != nil {
			maps.Copy(f, more(i))
		}
		c.send("input_audio_buffer.append", f)
		c.wait(10 * time.Millisecond)
	}
}

func (c *client) wait(d time.Duration) {
	if c.err == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
	}
}

// leave closes as clients do, and waits for the answer.
func (c *client) leave() {
	if c.err == nil {
		c.err = c.ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	}
	c.end(websocket.CloseNormalClosure)
}

// end waits for the end of the connection; dropped is one of its codes where
// the server says nothing.
func (c *client) end(codes ...int) {
	for c.err == nil {
		_, _, err := c.ws.ReadMessage()
		if err == nil {
			continue
		}
		if !websocket.IsCloseError(err, codes...) {
			c.err = fmt.Errorf("waiting for the end: %w", err)
		}
		return
	}
}

const dropped = websocket.CloseAbnormalClosure
