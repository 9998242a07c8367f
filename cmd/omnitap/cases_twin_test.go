package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-audio/wav"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// takeOf is a take of n samples of made speech: seeds make different takes of one
// sentence.
func takeOf(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 77))
	hz, v := 100+60*r.Float64(), 0.0
	return pcmOf(n, func(i int) int {
		if i%240 == 0 {
			hz = max(80, min(240, hz+4*r.NormFloat64()))
		}
		v = .95*v + float64(i%int(24000/hz)/20%2) + .3*r.NormFloat64()
		return int(900 * (v - 10))
	})
}

// speaker is a server whose whole answers are whole, and whose streams are what
// the test makes of them: by the request's X-Take.
type speaker struct {
	base  string
	twins atomic.Int64
	mu    sync.Mutex
	odd   []string // twins that are not what they should be
}

func startSpeaker(t *testing.T, stream, whole func(take string) string) *speaker {
	t.Helper()
	s := &speaker{}
	s.base = caseUpstream(t, func(c *net.TCPConn, _ int) {
		request, err := readCaseRequest(c)
		if err != nil {
			return
		}
		head, body, _ := strings.Cut(request, "\r\n\r\n")
		take := fieldOf(head, "X-Take")
		if fieldOf(head, "X-Omnitap-Twin") == "" {
			caseSend(t, c, stream(take))
			return
		}
		s.twins.Add(1)
		if !strings.Contains(body, `"stream":false`) || strings.Contains(body, "stream_format") || !strings.Contains(body, `"input":"hello"`) || fieldOf(head, "Authorization") != "Bearer k" || fieldOf(head, "X-Request-Id") != "" {
			s.mu.Lock()
			s.odd = append(s.odd, request)
			s.mu.Unlock()
		}
		caseSend(t, c, whole(take))
	})
	return s
}

func fieldOf(head, name string) string {
	for line := range strings.SplitSeq(head, "\r\n") {
		if k, v, ok := strings.Cut(line, ": "); ok && strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

const twinBody = `{"model":"m","stream":true,"stream_format":"audio","response_format":"pcm","input":"hello"}`

// ask sends one streaming speech request through the relay and reads it to its end.
func askSpeaker(t *testing.T, addr, id, take string) {
	t.Helper()
	c := caseDial(t, addr)
	caseSend(t, c, post("/v1/audio/speech", twinBody, "X-Request-Id: "+id, "X-Take: "+take, "Authorization: Bearer k", "Connection: close"))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("%s: %v", id, err)
	}
}

// rawPCM streams samples in chunks of 200 ms.
func rawPCM(pcm string) string {
	out := answerHead("audio/pcm", "X-Sample-Rate: 24000")
	for part := range slices.Chunk([]byte(pcm), 9600) {
		out += httpChunk(string(part))
	}
	return out + zeroChunk
}

// qualityOf reads the findings of a run, by request and check, and checks that its
// events tell of the states that its records have.
func qualityOf(t *testing.T, dir string) (recs map[string]*timeline.Record, found map[string]map[string]waveform.Finding) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	recs, found = map[string]*timeline.Record{}, map[string]map[string]waveform.Finding{}
	for r, err := range run.Records() {
		if err != nil {
			t.Fatal(err)
		}
		recs[r.RequestID] = r
	}
	for q, err := range run.Quality() {
		if err != nil {
			t.Fatal(err)
		}
		found[q.RequestID] = map[string]waveform.Finding{}
		for _, f := range q.Checks {
			found[q.RequestID][f.Name] = f
		}
	}
	ends := map[string]string{}
	for e, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event == "terminal" {
			ends[e.RequestID] = string(e.Status)
		}
	}
	for id, r := range recs {
		if ends[id] != string(r.Terminal.State) {
			t.Errorf("%s: the terminal event says %q, the record %q", id, ends[id], r.Terminal.State)
		}
	}
	return recs, found
}

// twins: the same request once more, whole, off the client's path, tells a stream
// that was cut short under load (C25) and one that holds two takes (C24) from good
// ones, whatever take the twin is.
func (o program) twins(t *testing.T) {
	t.Parallel()
	const n = 50000
	s := startSpeaker(t, func(take string) string {
		whole := takeOf(1, n)
		switch take {
		case "cut":
			return rawPCM(whole[:2*n*88/100])
		case "two":
			return rawPCM(whole + hiss(720, 3) + takeOf(2, n-1000))
		case "lost":
			return rawPCM(whole[:2*20000] + whole[2*20555:])
		case "other":
			return rawPCM(takeOf(5, n+700))
		}
		return rawPCM(whole)
	}, func(take string) string {
		if take == "refused" {
			return statusAnswer(429, "Too Many Requests", errorText("hello is busy", 429))
		}
		return lengthAnswer("audio/wav", wavFile(24000, 1, takeOf(1, n)))
	})
	dir, config := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("twin: {sample: 1, max_concurrent: 16, max_per_minute: 1000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, o.bin, s.base, "--out", dir, "--config", config)
	want := map[string]struct {
		state          timeline.State
		reason         string
		length, sample waveform.Verdict
		says           string
	}{
		"good":    {timeline.Success, "done", waveform.Passed, waveform.Passed, ""},
		"cut":     {timeline.QualityFailed, "twin_length", waveform.Failed, waveform.Failed, "short by 6000 samples (12.0 %): 44000 came, the twin has 50000"},
		"two":     {timeline.QualityFailed, "twin_length", waveform.Failed, waveform.Failed, "over-long by 49720 samples (99.4 %)"},
		"lost":    {timeline.QualityFailed, "twin_samples", waveform.Passed, waveform.Failed, "555 samples missing at frame 20000"},
		"other":   {timeline.Success, "done", waveform.Passed, waveform.NotMeasured, "another take"},
		"refused": {timeline.Success, "done", waveform.NotMeasured, waveform.NotMeasured, "the server answered the twin with 429"},
	}
	var wg sync.WaitGroup
	for take := range want {
		wg.Go(func() { askSpeaker(t, p.addr, take, take) })
	}
	wg.Wait()
	waitCase(t, "the twins", func() bool { return s.twins.Load() == int64(len(want)) })
	p.stop(t)
	if len(s.odd) > 0 {
		t.Errorf("twins that are not what they should be: %q", s.odd)
	}
	recs, found := qualityOf(t, dir)
	for id, w := range want {
		r, f := recs[id], found[id]
		if r == nil {
			t.Errorf("%s has no record", id)
			continue
		}
		wantTerminal(t, r, w.state, w.reason)
		if f["twin_length"].Verdict != w.length || f["twin_samples"].Verdict != w.sample {
			t.Errorf("%s: twin_length %+v, twin_samples %+v; want %s, %s", id, f["twin_length"], f["twin_samples"], w.length, w.sample)
		}
		if !strings.Contains(f["twin_length"].Reason+" "+f["twin_samples"].Reason, w.says) {
			t.Errorf("%s: %q, %q; want %q", id, f["twin_length"].Reason, f["twin_samples"].Reason, w.says)
		}
	}
	tables := mustRun(t, "report", dir)
	if !strings.Contains(tables, "twin_length") {
		t.Errorf("the quality gate does not name the twin:\n%s", tables)
	}
	b, err := os.ReadFile(filepath.Join(dir, "quality.jsonl"))
	if err != nil || strings.Contains(string(b), "hello") || strings.Contains(string(b), "Bearer") {
		t.Errorf("the findings tell of the request: %v\n%s", err, b)
	}
}

// twinAtShutdown: a twin that does not answer holds no shutdown up, and its record
// is written all the same.
func (o program) twinAtShutdown(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s := startSpeaker(t, func(string) string { return rawPCM(takeOf(1, 24000)) }, func(string) string {
		<-hold
		return ""
	})
	t.Cleanup(func() { close(hold) }) // ahead of the server's own, which waits for it
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, s.base, "--out", dir, "--twin", "1")
	askSpeaker(t, p.addr, "a", "a")
	waitCase(t, "the twin", func() bool { return s.twins.Load() == 1 })
	p.stop(t)
	recs, found := qualityOf(t, dir)
	wantTerminal(t, recs["a"], timeline.Success, "done")
	if f := found["a"]["twin_length"]; f.Verdict != waveform.NotMeasured || !strings.Contains(f.Reason, "canceled") {
		t.Errorf("twin_length = %+v, want not measured", f)
	}
}

// noTwin: without being asked for there is none, and requests that have none say
// why.
func (o program) noTwin(t *testing.T) {
	t.Parallel()
	s := startSpeaker(t, func(string) string { return rawPCM(takeOf(1, 24000)) }, func(string) string { return "" })
	dir := filepath.Join(t.TempDir(), "run")
	p := startServe(t, o.bin, s.base, "--out", dir)
	for i := range 3 {
		askSpeaker(t, p.addr, fmt.Sprint(i), "a")
	}
	p.stop(t)
	_, found := qualityOf(t, dir)
	if _, ok := found["0"]["twin_length"]; ok || s.twins.Load() != 0 {
		t.Errorf("%d twins, findings %+v; want none", s.twins.Load(), found["0"])
	}
}

// savesAudio: each stream becomes a WAV file with labels; the folder is its owner's.
func (o program) savesAudio(t *testing.T) {
	t.Parallel()
	s := startSpeaker(t, func(take string) string {
		if take == "lossy" {
			out := answerHead("audio/pcm", "X-Sample-Rate: 24000")
			for i := range 6 {
				out += httpChunk(sineFrom(i*19200, 18645, 24000))
			}
			return out + zeroChunk
		}
		return rawPCM(takeOf(1, 24000))
	}, nil)
	dir := filepath.Join(t.TempDir(), "sound")
	p := startServe(t, o.bin, s.base, "--save-audio", dir)
	askSpeaker(t, p.addr, "good/../x", "good")
	askSpeaker(t, p.addr, "bad", "lossy")
	p.stop(t)
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v; want 0700", fi, err)
	}
	got := wavSamples(t, filepath.Join(dir, "000001-good____x.wav"))
	if want := takeOf(1, 24000); len(got) != 24000 || got[100] != int(int16(uint16(want[200])|uint16(want[201])<<8)) {
		t.Errorf("%d samples, want the stream's 24000", len(got))
	}
	if n := len(wavSamples(t, filepath.Join(dir, "000002-bad.wav"))); n != 6*18645 {
		t.Errorf("%d samples, want %d", n, 6*18645)
	}
	labels := readFile(t, filepath.Join(dir, "000002-bad.labels.txt"))
	for _, want := range []string{"0.000000\t0.000000\tchunk 0\n", "0.776875\t0.776875\tchunk 1\n", "FAILED border_jumps: the curve breaks at 5 of 5", "end: quality-failed/border_jumps"} {
		if !strings.Contains(labels, want) {
			t.Errorf("labels lack %q:\n%s", want, labels)
		}
	}
}

// wavSamples reads a WAV file as anybody would.
func wavSamples(t *testing.T, path string) []int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := wav.NewDecoder(f)
	buf, err := d.FullPCMBuffer()
	if err != nil || d.SampleRate != 24000 || d.NumChans != 1 {
		t.Fatalf("%s: %v, %d Hz, %d channels", path, err, d.SampleRate, d.NumChans)
	}
	return buf.Data
}

// TestReplaySavesAudio: the sound of a capture, and a folder that cannot be had.
func TestReplaySavesAudio(t *testing.T) {
	capture := filepath.Join("..", "..", "testdata", "captures", "sglang-omni", "speech-pcm-lost-samples.wire.jsonl")
	if _, err := os.Stat(capture); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "sound")
	mustRun(t, "replay", "--save-audio", dir, capture)
	found, err := filepath.Glob(filepath.Join(dir, "000001-*.wav"))
	if err != nil || len(found) != 1 || len(wavSamples(t, found[0])) == 0 {
		t.Errorf("files %q, %v; want one with samples", found, err)
	}
	file := writeFile(t, "file", "x")
	if code, _, text := runApp(t, "replay", "--save-audio", filepath.Join(file, "x"), capture); code != exitEnvironment || !strings.Contains(text, "folder for sound") {
		t.Errorf("replay = %d, says %q; want %d and the folder", code, text, exitEnvironment)
	}
}
