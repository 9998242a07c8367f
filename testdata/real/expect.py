"""What a right record says about one exchange: from its bytes (wire.py) and what the engine handed out (servers.Truth).

read() gives the values, agrees() says whether the bytes and the engine tell the same, both as lists of differences.
Covers HTTP flows of vLLM-Omni 0.26.0 and SGLang-Omni 0.1.9; not WebSockets, images, video, or formats other than PCM
and WAV (an mp3 answer has no samples here).
"""

from __future__ import annotations

import base64
import json

import wire

NOMINAL = 24000  # taken where the wire shows no rate

FLOWS = {"/v1/chat/completions": "chat", "/v1/audio/speech": "speech", "/v1/audio/speech/batch": "speech_batch",
         "/v1/audio/transcriptions": "transcription"}


class Reading:
    """Values of one exchange as they are on the wire; None where there is nothing."""

    def __init__(self, ex: dict):
        q, r = ex["request"], ex["response"]
        self.request, self.response = q, r
        self.path = q["path"].split("?")[0]
        self.flow = FLOWS.get(self.path, "other")
        self.status = r["status"] if r else None
        self.id = None  # as the server names the request
        self.texts: list[str] = []
        self.pcm: wire.Pcm | None = None
        self.container = None
        self.rate = self.rate_assumed = None
        self.first_text = self.audio_event = self.term = None
        self.error: dict | None = None
        self.kind = wire.header(r["headers"], "content-type").split(";")[0] if r else ""
        if r and r["status"] == 200:
            self.body()
        elif r and r["complete"] and r["body"].data:
            self.term = r["body"].after(len(r["body"].data))

    def body(self) -> None:
        body: wire.Body = self.response["body"]
        self.id = wire.header(self.response["headers"], "x-request-id") or None
        if self.kind == "text/event-stream":
            for ev in wire.sse_events(body):
                self.event(ev)
            return
        end = body.after(len(body.data)) if body.data else None
        if self.response["complete"]:
            self.term = end
        if self.kind == "application/json" and self.response["complete"]:
            self.json_answer(json.loads(bytes(body.data)), end)
        elif self.flow == "speech" and self.kind.startswith("audio/"):
            self.raw_audio(body)

    # -- audio
    def add(self, raw: bytes, rate: int | None, end, channels: int = 1) -> None:
        """raw: PCM, or a WAV file of its own or the head of one."""
        off = 0
        if raw[:4] == b"RIFF":
            rate, channels, _, off, _ = wire.wav_parts(raw)
            self.container = "wav"
        self.container = self.container or "raw"
        if self.pcm is None:
            self.rate, self.rate_assumed = rate, None if rate else NOMINAL
            self.pcm = wire.Pcm(rate or NOMINAL, channels)
        self.pcm.feed(raw[off:], (lambda n: end(off + n)) if callable(end) else end)

    def raw_audio(self, body: wire.Body) -> None:
        if self.kind not in ("audio/wav", "audio/pcm"):
            self.container = self.kind.split("/")[1].replace("mpeg", "mp3")
            return
        h = self.response["headers"]
        rate = int(wire.header(h, "x-sample-rate", "0")) or None
        if body.data:
            self.add(bytes(body.data), rate, body.after, int(wire.header(h, "x-channels", "1")))
            chunks = [c for c in body.chunks() if c[:4] != b"RIFF" or len(c) > 44]
            self.pcm.chunks = len(chunks) if wire.header(h, "transfer-encoding") else 1

    # -- SSE
    def event(self, ev: dict) -> None:
        if ev["data"] == "[DONE]":
            self.term = self.term or ev["end"]
            return
        d = json.loads(ev["data"])
        if "error" in d:
            self.error = d["error"]
            return
        if self.flow == "chat":
            self.chat_event(d, ev["end"])
        elif d["type"] == "speech.audio.delta":
            self.audio_event = self.audio_event or ev["end"]
            rate = int(wire.header(self.response["headers"], "x-sample-rate", "0")) or None
            self.add(base64.b64decode(d["audio"]), rate, ev["end"])
        elif d["type"] == "speech.audio.done":
            self.term = ev["end"]
        elif d["type"] == "transcript.text.delta":
            self.text(d["delta"], ev["end"])

    def text(self, s: str | None, end: int) -> None:
        if s:
            self.texts.append(s)
            self.first_text = self.first_text or end

    def chat_event(self, d: dict, end: int) -> None:
        self.id = self.id or d["id"]
        for c in d["choices"]:
            delta = c["delta"]
            if "audio" in delta or d.get("modality") == "audio":
                self.audio_event = self.audio_event or end
                data = delta["audio"]["data"] if "audio" in delta else delta.get("content")
                if data:
                    self.add(base64.b64decode(data), None, end)
            else:
                self.text(delta.get("content"), end)

    def json_answer(self, d: dict, end: int) -> None:
        if self.flow == "transcription":
            self.text(d.get("text"), end)
        for item in d.get("results") or [] if self.flow == "speech_batch" else []:
            if item.get("audio_data"):
                self.audio_event = end
                self.add(base64.b64decode(item["audio_data"]), None, end)
        if self.flow != "chat":
            return
        self.id = self.id or d["id"]
        for c in d["choices"]:
            m = c["message"]
            self.text(m.get("content"), end)
            if (m.get("audio") or {}).get("data"):
                self.audio_event = end
                self.add(base64.b64decode(m["audio"]["data"]), None, end)


def state_of(r: Reading, client_left: bool) -> str:
    """The terminal state that the bytes alone tell."""
    if r.status is None:
        return "client-cancelled" if client_left else "transport-error"
    code = (r.error or {}).get("code") if r.status == 200 else r.status if r.status >= 400 else None
    if code in (429, 503):
        return "admission-rejected"
    if r.error or r.status >= 500:
        return "server-error"
    if r.status >= 400:
        return "invalid-request"
    if r.term or r.response["complete"]:
        return "success"
    return "client-cancelled" if client_left else "transport-error"


def pick(r: Reading, truths: list):
    """The engine's own entry of this exchange: by id where the wire shows one, else the oldest that is left."""
    mine = (r.id or "").removeprefix("chatcmpl-")
    for t in truths:
        if mine and mine in (t.id, t.id.removeprefix("chatcmpl-").rsplit("-", 1)[0]):
            truths.remove(t)
            return t
    return truths.pop(0) if truths else None


def agrees(r: Reading, truth, whole: bool) -> list[str]:
    """Differences between what came over the wire and what the engine handed out."""
    out = []
    got_text, text = r.texts, truth.texts
    if r.kind == "application/json":
        text = ["".join(text)] if text else []
    if r.texts and not (got_text == text if whole else text[:len(got_text)] == got_text):
        out.append(f"text deltas {got_text!r} want {text!r}")
    pcm, want = bytes(r.pcm.data) if r.pcm else b"", b"".join(truth.chunks)
    if r.container in ("wav", "raw") and not (pcm == want if whole else want.startswith(pcm)):
        out.append(f"audio {len(pcm)} bytes, engine {len(want)} bytes, first difference at {differ(pcm, want)}")
    return out


def differ(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
