// Package mock is a fake omni-modal inference server: it speaks the wire
// formats of vLLM-Omni, SGLang-Omni and OpenAI, as recorded from the real
// servers, makes audio whose every sample is known, and goes wrong on demand.
// It is meant for authors of clients and proxies, and for omnitap's own tests:
//
//	s, err := mock.New(mock.Config{Seed: 1, Script: mock.Script{Tone: "ramp"}})
//	…
//	err = s.Serve(ctx, listener) // until ctx ends
//	truth := s.Requests()        // what was really sent, and when
//
// Not in here: any model, compressed audio (mp3, flac, opus are refused with
// 400), TLS, HTTP/2, and the WebSocket flows, which come as one file each.
// Uploads are read and ignored. The mock does not check what a server would
// reject beyond the few requests named below.
//
// # Flows
//
//   - POST /v1/chat/completions: events or one JSON answer; text and audio by
//     modalities (omitted: both in vllm-omni, else text).
//   - POST /v1/audio/speech: stream_format, stream and response_format decide
//     between a whole file, a raw stream and events as in the real servers.
//     In openai a raw stream is the default.
//   - GET /v1/audio/speech/{id}: the outcome of a raw stream (sglang-omni).
//   - POST /v1/audio/speech/batch: JSON with a file an item.
//   - POST /v1/audio/transcriptions: multipart; events or JSON or text.
//   - POST /v1/images/generations: JSON with one PNG.
//   - POST /v1/videos, GET /v1/videos/{id}, GET /v1/videos/{id}/content and
//     POST /v1/videos/sync: a job that takes job_ms, or the bytes at once.
//   - GET /health, GET /v1/models.
//   - GET /mock/requests: the ground truth, a list of Truth. POST /mock/reset
//     empties it and starts ids anew. POST /mock/step {"n":1} opens the fault
//     gate for n chunks. These and the two above are never disturbed nor
//     recorded.
//
// Unknown modalities, models that are not in the script's list, bodies that
// are no JSON, empty inputs and streams in a format that cannot stream are
// refused in the dialect's own error shape; anything else that the mock cannot
// do is a 4xx that says so.
//
// Like the real servers it takes a client's FIN as a wish to cancel: the
// generation stops, the connection is closed and the truth says when.
//
// # Scripts
//
// A request is answered by the server's script with its own laid over it, key
// by key: from the header X-Mock-Script, else from the key mock of the JSON
// body (or form). The keys are the fields of Script; where a duration is
// meant the key ends in _ms. An unknown key is refused with 400.
//
//	curl … -H 'X-Mock-Script: {"tone":"ramp","samples":[240,1920],"chunks":9,"gap_ms":80,"faults":["reset=after:3"]}'
//
// The key steps lists single events for exact timing, the key raw the exact
// bytes of the connection. Without a script text deltas come 5 ms apart from
// 20 ms on, five audio chunks of 100 ms at 24 kHz 20 ms apart from 40 ms on.
// Text and audio run on clocks of their own; waits are counted from when the
// event before was due, so a slow client does not stretch them.
//
// # Faults
//
// Written "name" or "name=value"; further parts of a value are joined by "+".
// A POINT is start (before the head), head, after:N (behind N audio chunks;
// text events where there is no audio), event:N (behind N events or HTTP
// chunks), byte:N (of the body), output (behind the last text or audio, before
// what ends the stream) or end (before the zero chunk). The texts of the table
// are those of Faults.
//
//	role-only[=on|off] (chat)
//		a role-only delta comes first; without this fault as the real server does it (on for vllm-omni and openai text, off for sglang-omni)
//	empty-audio[=null/empty/header] (audio)
//		audio events without samples before the first real one: payload null, "" or a bare WAV header; default all three
//	no-audio (all)
//		no audio although it was asked for
//	no-text (chat)
//		no text deltas
//	no-done (sse)
//		the end marker ([DONE], speech.audio.done) is missing
//	double-done (sse)
//		the end marker comes twice
//	after-done (sse)
//		one more text event (speech: audio event) follows the end marker
//	unterminated (sse)
//		the last event lacks its blank line
//	no-finish (chat)
//		finish_reason stays null
//	empty-finish (chat)
//		finish_reason is the empty string
//	no-space (sse)
//		no space behind "data:"
//	bom (sse)
//		the stream starts with a byte order mark
//	multi-line (sse)
//		the JSON of an event is spread over up to three data lines
//	huge=BYTES (sse)
//		the first event is padded to a line of at least BYTES
//	bad-base64[=N][+form:star|urlsafe|unpadded|newline] (sse)
//		the payload of audio chunk N (from 1, default 1) holds a * (default), is in the URL alphabet, lacks its padding, or holds an escaped line feed
//	bad-json[=N] (sse)
//		event N (from 1) is cut in the middle of its JSON
//	error[=POINT][+form:native|event|string|json] (all)
//		an error inside a 200: native ends as the dialect fails (event, or cut body of raw audio), event names it in an event: line, string has the error as a string, json is a JSON body with status 200
//	content-type=TYPE (all)
//		the answer's Content-Type
//	lost=K (audio)
//		the last K sample frames of every chunk but the last are missing
//	lost-tail=K (audio)
//		the last K sample frames of the last chunk are missing (what a one-shot decode may do too)
//	repeat=K (audio)
//		every chunk but the first starts with the K frames that ended the one before
//	cumulative (audio)
//		every chunk holds all samples so far
//	whole-repeat (audio)
//		a last chunk repeats the whole
//	odd-bytes (audio)
//		one byte more than whole samples at the end
//	wrong-rate=HZ (audio)
//		headers and fields declare HZ, the samples stay as they are
//	rate-change=N:HZ (audio)
//		audio chunk N (from 1) and those that follow declare HZ
//	channel-change=N:C (audio)
//		audio chunk N (from 1) and those that follow declare C channels
//	placeholder=ffffffff|7fffffff|0|SIZE (wav)
//		the data size in WAV headers is a placeholder; SIZE is decimal
//	header-per-chunk (raw)
//		raw WAV bodies and SSE of bare PCM carry a WAV header in every chunk
//	split-header[=N] (raw)
//		the WAV header of a raw body comes in two HTTP chunks, N bytes and the rest
//	status=CODE[+retry-after:SECONDS] (all)
//		the request is refused with CODE in the dialect's error shape
//	reject-upload (all)
//		413 as soon as the head is read, then RST while the upload still runs
//	cut[=POINT] (all)
//		FIN at POINT, without zero chunk; default after:1
//	reset[=POINT] (all)
//		RST at POINT; default after:1
//	stall[=POINT][+for:DURATION] (all)
//		nothing more at POINT (default after:1), for DURATION or for ever; comment_every_ms goes on
//	bad-chunk-size[=POINT] (all)
//		a chunk-size line that is no number at POINT, then FIN; default after:1
//	short-length[=N] (all)
//		Content-Length promises N bytes more than come, then FIN; streams get a Content-Length
//	burst (all)
//		no waits: the head and everything in one write
//	segments=N[/N…]|MIN-MAX[+pause:DURATION] (all)
//		the byte stream is cut into writes of these sizes (the last size goes on) or of seeded random ones, whatever the HTTP chunks are
//	merge=N (all)
//		N HTTP chunks are held back and go out in one write; 0 means all
//	chunk-bytes=N[/N…] (all)
//		events are spread over HTTP chunks of these sizes (the last size goes on)
//	chunk-events=N (all)
//		N events are joined in one HTTP chunk
//	interim=CODE[/CODE…][+gap:DURATION] (all)
//		1xx answers (102, 103) before the real one, DURATION apart; a 103 brings Connection, X-Nom and Link fields
//	gzip (all)
//		Content-Encoding gzip with a sync flush an event, asked for or not
//	gate (audio)
//		every audio chunk but the first waits for one POST /mock/step
//	half-close (all)
//		a client that half-closes is answered; without this fault it counts as gone, as with the real servers
//	idle=DURATION (all)
//		an idle connection is closed after DURATION; without it never
//	send-buffer=BYTES (all)
//		SO_SNDBUF, so that a client that does not read is felt early
//
// # Ground truth
//
// Truth holds only what was written: text deltas, samples per chunk, their
// SHA-256, and CLOCK_MONOTONIC stamps taken right before the write call with
// a thing's first byte and right after the one with its last. Faults that lose
// or repeat samples change what is written; clean_samples keeps the length
// that there was before.
package mock
