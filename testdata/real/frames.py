"""A reader of WebSocket bytes that shares no code with omnitap: messages with their offsets, then turns of each dialect.

Offsets count the bytes of a side's stream from 1, as records.md has them: a message is complete with the last byte of
its last frame. Covers what vLLM-Omni 0.26.0 and SGLang-Omni 0.1.9 send; it believes what it reads. Standard library only.
"""

from __future__ import annotations

import base64
import json
import zlib

import wire


class Message:
    """A data message, or a control frame (op 8, 9, 10)."""

    def __init__(self, op: int, start: int):
        self.op, self.start, self.end, self.frames, self.packed, self.data = op, start, 0, 0, False, b""


def messages(buf: bytes, pos: int, deflate: bool, takeover: bool = True) -> list[Message]:
    """The complete messages of one side from offset pos on."""
    out, cur, inflate = [], None, zlib.decompressobj(-15)
    while len(buf) - pos >= 2:
        b0, b1, p = buf[pos], buf[pos + 1], pos + 2
        n = b1 & 0x7F
        if n >= 126:
            width = 2 if n == 126 else 8
            n, p = int.from_bytes(buf[p:p + width], "big"), p + width
        mask = buf[p:p + 4] if b1 & 0x80 else b""
        p += len(mask)
        if len(buf) < p + n:
            break
        data = buf[p:p + n]
        if mask:
            data = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
        op, m = b0 & 0x0F, cur
        if op:
            m = Message(op, pos + 1)
            m.packed = bool(b0 & 0x40)
        pos = p + n
        m.data, m.end, m.frames = m.data + data, pos, m.frames + 1
        if op >= 8:
            out.append(m)
            continue
        cur = m
        if b0 & 0x80:
            if m.packed:
                assert deflate, "a packed message where nothing was negotiated"
                m.data = inflate.decompress(m.data + b"\0\0\xff\xff")
                inflate = inflate if takeover else zlib.decompressobj(-15)
            out.append(m)
    return out


class Socket:
    """A connection that became a WebSocket: its heads, and the messages of both sides."""

    def __init__(self, conn: wire.Conn):
        self.conn = conn
        line, self.headers, end = wire.read_head(conn.stream("c"), 0)
        self.path = line.split(" ")[1]
        self.status_line, self.answer, up = wire.read_head(conn.stream("s"), 0)
        ext = wire.header(self.answer, "sec-websocket-extensions")
        self.deflate = "permessage-deflate" in ext
        self.c = messages(conn.stream("c"), end, self.deflate, "client_no_context_takeover" not in ext)
        self.s = messages(conn.stream("s"), up, self.deflate, "server_no_context_takeover" not in ext)
        self.events = [(m.end, json.loads(m.data) if m.op == 1 else m.data) for m in self.s if m.op < 8]

    def data(self, side: str) -> list[Message]:
        return [m for m in getattr(self, side) if m.op < 8]

    def close_code(self, side: str) -> int | None:
        m = next((m for m in getattr(self, side) if m.op == 8), None)
        return m and (int.from_bytes(m.data[:2], "big") if m.data else 1005)

    def first_end(self) -> tuple[int, str]:
        """When and by which side it was ended: by the first close frame, or else the first end of a stream."""
        found = [(self.conn.time_of(d, m.end), d) for d in "cs" for m in getattr(self, d) if m.op == 8]
        return min(found + [(t, d) for t, d, w in self.conn.events if isinstance(w, str)])

    def ended(self) -> int:
        return self.first_end()[0]

    def closer(self) -> tuple[str, int | None]:
        who = self.first_end()[1]
        return {"c": "client", "s": "server"}[who], self.close_code(who)


class Ulaw(wire.Pcm):
    """One byte a sample."""

    def feed(self, pcm: bytes, off) -> None:
        self.chunks += 1
        self.data += pcm
        if self.playable is None and 50 * len(self.data) >= self.rate:
            self.playable = off

    def samples(self) -> int:
        return len(self.data)


class Turn:
    """What the bytes say of one turn."""

    def __init__(self, id: str | None = None):
        self.id = id
        self.texts: list[str] = []
        self.snapshots = 0
        self.first_text = self.audio_event = self.term = self.stopped = None
        self.pcm: wire.Pcm | None = None
        self.container, self.encoding, self.nominal = None, "pcm_s16le", False

    def say(self, delta: str, end: int) -> None:
        if delta:
            self.texts.append(delta)
            self.first_text = self.first_text or end

    def sound(self, raw: bytes, end: int, rate: int, form: str = "", nominal: bool = False) -> None:
        """raw: samples, or a WAV file of its own."""
        self.audio_event = self.audio_event or end
        self.container = self.container or ("wav" if raw[:4] == b"RIFF" else "raw")
        if raw[:4] == b"RIFF":
            rate, _, _, off, _ = wire.wav_parts(raw)
            raw, nominal = raw[off:], False
        if self.pcm is None:
            self.pcm, self.nominal = (Ulaw if form == "g711_ulaw" else wire.Pcm)(rate), nominal
        if form == "g711_ulaw":
            self.encoding = form
        if raw:
            self.pcm.feed(raw, end)

    def text(self) -> str:
        return "".join(self.texts)


# -- one reader a dialect: the server's events to turns ------------------------------------------------
def utterances(events: list) -> list[Turn]:
    """vLLM-Omni's speech stream: session.done ends an utterance; the rate of audio.start is a constant."""
    out, cur, rate = [], None, 0
    for end, m in events:
        if isinstance(m, bytes):
            cur.sound(m, end, rate, nominal=True)
        elif m["type"] == "audio.start":
            cur, rate = cur or Turn(), m.get("sample_rate") or 0
        elif m["type"] == "session.done":
            cur = cur or Turn()
            cur.term = end
            out.append(cur)
            cur = None
    return out + ([cur] if cur else [])


def sentences(events: list) -> list[Turn]:
    """SGLang-Omni's speech stream: a turn a sentence."""
    out, rate = [], 0
    for end, m in events:
        if isinstance(m, bytes):
            out[-1].sound(m, end, rate)
        elif m["type"] == "audio.start":
            out.append(Turn(m["id"]))
            rate = m["sample_rate"]
        elif m["type"] == "audio.done":
            out[-1].term = end
    return out


def generations(events: list) -> list[Turn]:
    """vLLM-Omni's turn realtime."""
    out, cur = [], None
    for end, m in events:
        if m["type"] in ("session.created", "session.updated"):
            continue
        cur = cur or Turn()
        if m["type"] == "transcription.delta":
            cur.say(m["delta"], end)
        elif m["type"] == "response.audio.delta":
            cur.sound(base64.b64decode(m["audio"]), end, m["sample_rate_hz"])
        elif m["type"] == "response.audio.done":
            cur.term = end
            out.append(cur)
            cur = None
    return out


def queries(events: list) -> list[Turn]:
    """vLLM-Omni's video chat."""
    out: list[Turn] = []
    for end, m in events:
        kind = m["type"]
        if kind == "response.start":
            out.append(Turn())
        elif kind == "response.text.delta":
            out[-1].say(m["delta"], end)
        elif kind == "response.audio.delta":
            out[-1].sound(base64.b64decode(m["data"]), end, 24000)
        elif kind == "video.frames.consumed":
            out[-1].id = m["request_id"]
        elif kind == "response.audio.done" or kind == "response.text.done" and len(out) and out[-1].pcm is None:
            out[-1].term = end
    return out


TEXT = {"response.text.delta", "response.output_text.delta", "response.audio_transcript.delta",
        "response.output_audio_transcript.delta"}
AUDIO = {"response.audio.delta", "response.output_audio.delta"}


def responses(events: list) -> list[Turn]:
    """The dialects with response ids; where a server hears the end of speech, that is noted too."""
    out: dict[str, Turn] = {}
    stopped, rate, nominal = None, 24000, True
    for end, m in events:
        kind = m["type"]
        key = m.get("response_id") or (m.get("response") or {}).get("id")
        if kind == "session.updated":
            granted = ((m["session"].get("sglang") or {}).get("granted") or {}).get("output_audio_format") or {}
            rate, nominal = granted.get("rate", rate), not granted.get("rate")
        elif kind == "input_audio_buffer.speech_stopped":
            stopped = end
        elif kind == "response.created" and key not in out:
            out[key] = Turn(key)
            out[key].stopped = stopped
        elif kind in TEXT:
            out[key].say(m["delta"], end)
        elif kind in AUDIO:
            raw = base64.b64decode(m.get("delta") or m.get("audio"))
            out[key].sound(raw, end, m.get("sample_rate_hz") or rate, m.get("format") or "", nominal and "format" not in m)
        elif kind == "response.done":
            out[key].term = end
    return list(out.values())


def segments(events: list) -> list[Turn]:
    """SGLang-Omni's live transcription: each event holds the whole text so far."""
    out: dict[int, Turn] = {}
    for end, m in events:
        if m["type"] == "input_audio_buffer.speech_stopped":
            stopped = end
        if m["type"] != "transcription.segment":
            continue
        t = out.setdefault(m["segment_id"], Turn())
        t.texts = []
        t.say(m["text"], end)
        t.snapshots += bool(m["text"])
        if m["is_final"]:
            t.term, t.stopped = end, stopped
    return list(out.values())
