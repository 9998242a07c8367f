package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/drive"
	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/timeline"
)

type demoFlags struct {
	out, probes string
	requests    int
	json        bool
}

func demoCmd(a *app) *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "a fake omni server, a few requests of every flow through the relay, and the tables",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "", "run directory (default: a new one in the temporary folder)")
	fl.IntVar(&f.requests, "requests", 3, "requests of each flow")
	fl.StringVar(&f.probes, "probes", "auto", "stage probes: auto, off or require")
	fl.BoolVar(&f.json, "json", false, "print JSON instead of tables")
	return cmd
}

// demo runs the mock, the relay and a client in one process.
func (a *app) demo(ctx context.Context, f *demoFlags) error {
	switch f.probes {
	case "auto", "off", "require":
	default:
		return exitWith(exitUsage, fmt.Errorf("--probes must be auto, off or require, not %q", f.probes))
	}
	if f.requests < 1 {
		return exitWith(exitUsage, errors.New("--requests must be at least 1"))
	}
	if f.out == "" {
		dir, err := os.MkdirTemp("", "omnitap-demo-")
		if err != nil {
			return exitWith(exitEnvironment, err)
		}
		f.out = dir
	}
	kept := &keeper{}
	work, err := a.demoRun(ctx, f, kept)
	if err != nil {
		return err
	}
	t := report.Tables(all(kept.records))
	t.AddSessions(all(kept.sessions))
	t.AddQuality(all(kept.quality()))
	if f.json {
		err = t.WriteJSON(a.out)
	} else {
		err = t.Render(a.out)
	}
	if err != nil {
		return exitWith(exitEnvironment, err)
	}
	where := a.out
	if f.json {
		where = a.errOut // standard output is the JSON alone
	}
	_, _ = fmt.Fprintln(where, f.out)
	return exitWith(exitUnusable, errors.Join(demoVerdict(kept.records, kept.sessions), work.verdict(kept.records)))
}

// demoRun sends the requests. What the stages did by their own account is nil where no
// probes watched them.
func (a *app) demoRun(ctx context.Context, f *demoFlags, kept *keeper) (work *stageWork, err error) {
	server, err := startDemoServer(ctx, a.errOut)
	if err != nil {
		return nil, exitWith(exitEnvironment, err)
	}
	defer func() { err = errors.Join(err, exitWith(exitEnvironment, server.stop())) }()
	sf := &serveFlags{fileConfig: fileConfig{
		Upstream: "http://" + server.addr, Listen: "127.0.0.1:0", Admin: "off", Out: f.out, Log: "off", Drain: 5 * time.Second,
		Probes: f.probes, Stages: probes.Config{Names: stageNames()},
	}}
	s, err := a.build(ctx, sf, kept)
	if err != nil {
		return nil, err
	}
	s.sayProbes(a.errOut, f.probes)
	relay, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.run(relay) }()
	err = a.drive(ctx, "http://"+s.listener.Addr().String(), f)
	end()
	if err = errors.Join(err, <-done); err != nil || s.stages == nil {
		return nil, exitWith(exitUnusable, err)
	}
	work, err = readStageWork(server.truth)
	work.lost = s.stages.set.Status().Lost
	return work, exitWith(exitEnvironment, err)
}

// stageNames are the names of the fake server's stages by number.
func stageNames() map[int]string {
	names := map[int]string{}
	for i, n := range fake.Names {
		names[i] = n
	}
	return names
}

// demoRequest is one request of the demo.
type demoRequest struct {
	what, path, mock string
	body             map[string]any
	form             map[string]string
}

func demoRequests() []demoRequest {
	msg := []map[string]string{{"role": "user", "content": "Say hello."}}
	chat := func(extra map[string]any) map[string]any {
		m := map[string]any{"model": "demo-omni", "messages": msg}
		maps.Copy(m, extra)
		return m
	}
	both := []string{"text", "audio"}
	return []demoRequest{
		{what: "vLLM-Omni chat, text and audio", path: "/v1/chat/completions", body: chat(map[string]any{"stream": true, "modalities": both})},
		{what: "vLLM-Omni chat, one JSON answer", path: "/v1/chat/completions", body: chat(map[string]any{"modalities": both})},
		{what: "vLLM-Omni speech, raw WAV", path: "/v1/audio/speech", body: map[string]any{"model": "demo-tts", "input": "Hello.", "stream_format": "audio"}},
		{what: "vLLM-Omni speech, events", path: "/v1/audio/speech", body: map[string]any{"model": "demo-tts", "input": "Hello.", "stream_format": "sse", "response_format": "pcm"}},
		{what: "vLLM-Omni speech, whole file", path: "/v1/audio/speech", body: map[string]any{"model": "demo-tts", "input": "Hello."}},
		{what: "speech batch", path: "/v1/audio/speech/batch", body: map[string]any{"items": []map[string]string{{"input": "One."}, {"input": "Two."}}}},
		{what: "images", path: "/v1/images/generations", body: map[string]any{"prompt": "a relay"}},
		{what: "video", path: "/v1/videos/sync", form: map[string]string{"prompt": "a relay"}},
		{what: "SGLang-Omni chat, text and audio", path: "/v1/chat/completions", mock: `{"dialect":"sglang-omni"}`, body: chat(map[string]any{"stream": true, "modalities": both, "seed": 2})},
		{what: "SGLang-Omni speech, raw PCM", path: "/v1/audio/speech", mock: `{"dialect":"sglang-omni"}`, body: map[string]any{"input": "Hello.", "stream": true, "response_format": "pcm"}},
		{what: "SGLang-Omni transcription", path: "/v1/audio/transcriptions", mock: `{"dialect":"sglang-omni"}`, form: map[string]string{"stream": "true", "model": "demo-asr"}},
		{what: "OpenAI chat, text", path: "/v1/chat/completions", mock: `{"dialect":"openai"}`, body: chat(map[string]any{"stream": true})},
		{what: "a stream that fails in the middle", path: "/v1/chat/completions", mock: `{"faults":["error=after:2"]}`, body: chat(map[string]any{"stream": true, "modalities": both})},
		{what: "a stream that is cut", path: "/v1/audio/speech", mock: `{"faults":["cut=after:2"]}`, body: map[string]any{"model": "demo-tts", "input": "Hello.", "stream_format": "audio"}},
	}
}

// drive sends the requests, flow by flow.
func (a *app) drive(ctx context.Context, base string, f *demoFlags) error {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	for i, s := range demoSteps(client) {
		if !f.json {
			_, _ = fmt.Fprintf(a.errOut, "[%2d/%d] %s\n", i+1, len(demoSteps(client)), s.what)
		}
		if err := s.repeat(ctx, base, f.requests); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// demoStep is one thing that the demo shows.
type demoStep struct {
	what string
	run  func(ctx context.Context, base string) error
	// together says that all of a kind run at once.
	together bool
}

func (s *demoStep) repeat(ctx context.Context, base string, times int) error {
	errs := make([]error, times)
	if !s.together {
		for i := range errs {
			if errs[i] = s.run(ctx, base); errs[i] != nil {
				break
			}
		}
		return errors.Join(errs...)
	}
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = s.run(ctx, base) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// demoSteps lists the requests, then the WebSocket sessions.
func demoSteps(client *http.Client) []demoStep {
	var out []demoStep
	for _, q := range demoRequests() {
		out = append(out, demoStep{what: q.what, run: func(ctx context.Context, base string) error { return q.send(ctx, client, base) }})
	}
	for _, s := range drive.Sessions() {
		out = append(out, demoStep{what: "WebSocket: " + s.Name, run: s.Run, together: true})
	}
	return out
}

// send makes one request and takes its answer; that it is cut or fails may be
// what it is for, so only a request that could not be made is an error.
func (q *demoRequest) send(ctx context.Context, client *http.Client, base string) error {
	var body bytes.Buffer
	media := "application/json"
	if q.form != nil {
		w := multipart.NewWriter(&body)
		for k, v := range q.form {
			if err := w.WriteField(k, v); err != nil {
				return fmt.Errorf("writing a form: %w", err)
			}
		}
		part, err := w.CreateFormFile("file", "speech.wav")
		if err == nil {
			_, err = part.Write(make([]byte, 3200))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			return fmt.Errorf("writing a form: %w", err)
		}
		media = w.FormDataContentType()
	} else if err := json.NewEncoder(&body).Encode(q.body); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+q.path, &body)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Content-Type", media)
	if q.mock != "" {
		req.Header.Set("X-Mock-Script", q.mock)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

// demoVerdict is an error when the demo did not show what it should: every request
// but two kinds succeeds, and every turn that the client did not cut off.
func demoVerdict(records []*timeline.Record, sessions []*timeline.Session) error {
	good, bad, turns := 0, 0, 0
	for _, r := range records {
		if r.Turn != nil && (r.Terminal.State == timeline.Success || r.Terminal.Reason == "interrupted") {
			turns++
			continue
		}
		switch r.Terminal.State {
		case timeline.Success:
			good++
		case timeline.ServerError, timeline.TransportError:
			bad++
		default:
			return fmt.Errorf("request %s ended as %s (%s)", r.RequestID, r.Terminal.State, r.Terminal.Reason)
		}
	}
	if n := len(demoRequests()) - 2; good == 0 || bad == 0 || good != n*bad/2 {
		return fmt.Errorf("%d requests succeeded and %d failed on purpose, out of proportion", good, bad)
	}
	want := 0
	for _, s := range drive.Sessions() {
		want += s.Turns * len(sessions) / len(drive.Sessions())
	}
	if turns == 0 || turns != want {
		return fmt.Errorf("%d turns of %d sessions ended as they should, want %d", turns, len(sessions), want)
	}
	return nil
}
