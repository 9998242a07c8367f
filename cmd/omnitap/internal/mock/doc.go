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
// 400), TLS and HTTP/2.
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
//   - WebSockets, see below.
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
// # Stages
//
// With Config.Stages vLLM-Omni's streaming chat with text, and its streaming speech,
// are answered by real stage processes (package stages) where the request brings no
// script: words and samples go out as the stages hand them over. A chat has a token a
// word and max_tokens of them, a speech those of its input; sound lasts for 0.4 s a
// word, 2.4 s at least. The engine's id is the id on the wire and -<8 hex>. A stage that
// ends is an error event, a 500 to whoever comes later, and a /health of 503.
//
// # WebSocket flows
//
// Vllm-omni (openai knows the third only):
//
//   - /v1/audio/speech/stream: speech; a turn is an utterance.
//   - /v1/realtime: realtime, turn-based; a turn is a pair of commits. With the
//     script's realtime set to openai: realtime-openai, a turn is a response.
//   - /v1/realtime?duplex=1, or realtime set to duplex: duplex in the Realtime
//     projection; a turn is a response. It answers through the chat path (a whole
//     WAV a delta) or, with native, as a model that is duplex itself: a unit of
//     input (units, unit_ms) yields response.listen or an answer, pcm16 or G.711
//     as the session asks. A native session can be resumed with its token. Loud
//     input of 1.2 s interrupts an answer of the chat path.
//   - /v1/duplex: duplex-native, the same sessions in their own vocabulary; in
//     variant 0.30 an alias of the one before.
//   - /v1/video/chat/stream: video-chat; a turn is a query.
//   - /v1/realtime/video: video-out; the one turn is the session. Binary messages
//     count as chunks, not as audio.
//
// Sglang-omni:
//
//   - /v1/audio/speech/stream: speech-sglang; a turn is a sentence.
//   - /v1/realtime: realtime-sglang; voice detection makes turns of the audio that
//     comes, and new speech interrupts an answer. Its clock is the audio's.
//   - /v1/realtime with the script's realtime set to shared (native units) or
//     turn-based: duplex-sglang; a turn is a response.
//   - /v1/realtime?intent=transcription: realtime-transcription; a turn is a
//     segment of speech, its text the hypotheses in heard.
//
// Any other path with an upgrade is refused with 403. permessage-deflate is
// accepted if the script says deflate. Session objects hold what the recorded
// servers say; settings in them have no effect beyond modalities, formats, voice
// detection and what is named here. What was never recorded is by the documents:
// realtime-openai, video-out, turn-based, word timestamps, the answer to
// session.resume (session.resumed), commits of audio and barge-in in duplex.
//
// Like the real servers it takes a client's FIN as a wish to cancel: the
// generation stops, the connection is closed and the truth says when.
//
// # Scripts
//
// A request is answered by the server's script with its own laid over it, key
// by key: from the header X-Mock-Script, else from the key mock of the JSON
// body (or form), else from the key mock of the query. In a WebSocket session
// the key mock of the message that configures it (session.config, .update,
// .create, .start, at its top or in its session) is laid over that for all turns
// to come, the key mock of a message that asks for a turn for that turn. The keys are the fields of Script; where a duration is
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
// In a WebSocket session a point is one of each turn: head is before its first
// event, byte:N counts the bytes of its frames, end is behind the event that ends
// it; only start is the session's own, before the handshake's answer. An event is
// a message, whatever else is said of SSE events; what concerns roles, finish
// reasons, lines, HTTP chunks and lengths has no effect. Faults of frames
// (fragments, segments, merge, burst, half-close, send-buffer, ping-every, no-pong,
// no-close-reply) are those of the script that the handshake had.
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
//	fragments=N[+ping:TEXT] (ws)
//		every message comes in N frames (empty ones if it is shorter), with a ping between them if asked for
//	ping-every=DURATION (ws)
//		the server pings every DURATION
//	no-pong (ws)
//		the client's pings are not answered
//	no-close-reply (ws)
//		the client's close frame is not answered, the connection stays open
//	close=CODE|empty|byte[+at:POINT][+reason:TEXT] (ws)
//		a close frame at POINT (default end) with any code from 0 to 65535, an empty or a one-byte payload, then FIN
//	bad-frame=masked|rsv1|rsv2|opcode|big-ping|split-ping|continuation|utf8|long-length[+at:POINT] (ws)
//		a frame that no server should send, at POINT (default after:1)
//	server-half-close[=POINT] (ws)
//		FIN at POINT without a close frame, but the client's messages are read on; default after:1
//	deaf[=POINT][+for:DURATION] (ws)
//		the server reads nothing from its socket from POINT (default after:1) on, for DURATION or for ever, and goes on sending
//	skip=TYPE[/TYPE…] (ws)
//		events of these types are not sent; types may end in *
//	late-done=DURATION (ws)
//		the event that ends a turn comes DURATION late
//	late-audio=N[+gap:DURATION][+id:same|none] (ws)
//		N more audio chunks of ten samples follow a cancel or an interruption, DURATION apart (default 10ms), with the response's id or with none
//	replay=N (ws)
//		the last N events of the turn before are sent again in front of the next turn's first, byte for byte
//	unknown=N (ws)
//		an event of an unknown type that holds base64 stands before each of a turn's first N audio events
//
// # Ground truth
//
// Truth holds only what was written: text deltas, samples per chunk, their
// SHA-256, and CLOCK_MONOTONIC stamps taken right before the write call with
// a thing's first byte and right after the one with its last. Faults that lose
// or repeat samples change what is written; clean_samples keeps the length
// that there was before.
//
// A WebSocket session has an entry for the connection (form session) and one for
// each turn (form turn), with the session's name on the wire, else the connection's
// number, and the turn's number from 0. A turn's request is the message that asked
// for it, or the audio in which voice detection heard the end. A message's stamp is
// that of its frames. Samples that went out once more, or after the turn's end, are
// in extra_samples only.
package mock
