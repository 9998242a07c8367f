"""A recording TCP relay, and a reader of HTTP byte streams that shares no code with omnitap.

Recorder stands between a client and a port and keeps every byte with direction and time. The read_… functions give
exchanges, SSE events and PCM with the stream offset of each milestone. Standard library only.
It does not judge anything, reads no WebSocket, and believes what it reads: it is for servers and clients under test.
"""

from __future__ import annotations

import hashlib
import re
import select
import socket
import struct
import threading
import time


def linger0(s: socket.socket) -> None:
    """Makes the close of s a reset."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# -- the recorder ---------------------------------------------------------------------------------
class Conn:
    """One connection: events (mono ns, 'c' or 's', bytes | 'fin' | 'rst') in order."""

    def __init__(self):
        self.events: list[tuple[int, str, bytes | str]] = []
        self.done = threading.Event()

    def add(self, side: str, what: bytes | str) -> None:
        self.events.append((time.monotonic_ns(), side, what))

    def stream(self, side: str) -> bytes:
        return b"".join(w for _, d, w in self.events if d == side and isinstance(w, bytes))

    def end_of(self, side: str) -> str | None:
        """'fin' or 'rst' if this side ended the connection before the other did, else None."""
        ends = [(d, w) for _, d, w in self.events if isinstance(w, str)]
        return ends[0][1] if ends and ends[0][0] == side else None

    def time_of(self, side: str, offset: int) -> int:
        """When the byte at this 1-based offset was read here."""
        n = 0
        for t, d, w in self.events:
            if d == side and isinstance(w, bytes):
                n += len(w)
                if n >= offset:
                    return t
        raise ValueError(offset)


class Recorder:
    """Relays 127.0.0.1:port to target and keeps what passes; resets and half-closes are passed on as such."""

    def __init__(self, target: tuple[str, int]):
        self.target = target
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.conns: list[Conn] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.sock.accept()
            except OSError:
                return
            conn = Conn()
            self.conns.append(conn)
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                linger0(client)
                client.close()
                conn.done.set()
                continue
            for s in (client, server):
                s.settimeout(None)
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(conn, client, server), daemon=True).start()

    def _pump(self, conn: Conn, client: socket.socket, server: socket.socket) -> None:
        """Both directions in one thread, so that closing a socket takes effect at once."""
        other, name = {client: server, server: client}, {client: "c", server: "s"}
        reading = [client, server]
        while reading:
            for src in select.select(reading, [], [])[0]:
                try:
                    data = src.recv(65536)
                except OSError:
                    conn.add(name[src], "rst")
                    linger0(other[src])
                    reading = []
                    break
                if not data:
                    conn.add(name[src], "fin")
                    reading.remove(src)
                    try:
                        other[src].shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                    continue
                conn.add(name[src], data)
                try:
                    other[src].sendall(data)
                except OSError:
                    pass  # the other side is gone; its own event is read next
        client.close()
        server.close()
        conn.done.set()

    def finish(self, seconds: float = 10.0) -> list[Conn]:
        """Stops listening, waits for the connections to end, and returns those on which anything passed."""
        self.sock.close()
        deadline = time.monotonic() + seconds
        for c in self.conns:
            c.done.wait(max(0.0, deadline - time.monotonic()))
        return [c for c in self.conns if any(isinstance(w, bytes) for _, _, w in c.events)]


# -- HTTP -----------------------------------------------------------------------------------------
class Body:
    """A message body, where each of its bytes stands in the stream, and its HTTP chunks."""

    def __init__(self):
        self.data = bytearray()
        self.parts: list[tuple[int, int, int]] = []  # body start, stream start, length

    def add(self, stream_pos: int, piece: bytes) -> None:
        if piece:
            self.parts.append((len(self.data), stream_pos, len(piece)))
            self.data += piece

    def after(self, n: int) -> int:
        """Stream offset just after the n-th body byte (n >= 1)."""
        for b, s, ln in self.parts:
            if b < n <= b + ln:
                return s + n - b
        raise ValueError(n)

    def chunks(self) -> list[bytes]:
        return [bytes(self.data[b:b + n]) for b, _, n in self.parts]


def read_head(buf: bytes, pos: int):
    """(start line, headers as a list in wire case and order, offset after the blank line), or None."""
    end = buf.find(b"\r\n\r\n", pos)
    if end < 0:
        return None
    lines = buf[pos:end].decode("latin-1").split("\r\n")
    return lines[0], [tuple(x.strip() for x in ln.partition(":")[::2]) for ln in lines[1:]], end + 4


def header(headers: list, name: str, default: str = "") -> str:
    return next((v for k, v in headers if k.lower() == name), default)


def read_chunked(buf: bytes, pos: int, body: Body) -> tuple[int, bool]:
    """Reads chunks into body; (offset reached, whether the end came)."""
    while True:
        e = buf.find(b"\r\n", pos)
        if e < 0:
            return len(buf), False
        n = int(buf[pos:e].split(b";")[0], 16)
        pos = e + 2
        if n == 0:
            end = buf.find(b"\r\n", pos)
            return (end + 2, True) if end >= 0 else (len(buf), False)
        body.add(pos, buf[pos:pos + n])
        if len(buf) < pos + n + 2:
            return len(buf), False
        pos += n + 2


def read_requests(c: bytes) -> list[dict]:
    out, pos = [], 0
    while (h := read_head(c, pos)) is not None:
        line, headers, p = h
        method, path, version = line.split(" ", 2)
        body, whole = Body(), True
        if header(headers, "transfer-encoding").lower() == "chunked":
            p, whole = read_chunked(c, p, body)
        else:
            n = int(header(headers, "content-length", "0"))
            body.add(p, c[p:p + n])
            p, whole = min(p + n, len(c)), len(c) >= p + n
        out.append({"method": method, "path": path, "version": version, "headers": headers, "body": body,
                    "start": pos, "end": p, "complete": whole})
        pos = p
    return out


def read_responses(s: bytes, requests: list[dict], closed: bool) -> list[dict]:
    """The answers on one connection. closed: the server ended it cleanly, so a body without framing is whole."""
    out, pos = [], 0
    for req in requests:
        interim = []
        start = pos
        while (h := read_head(s, pos)) is not None and h[0].split(" ")[1].startswith("1"):
            interim.append(int(h[0].split(" ")[1]))
            pos = h[2]
        if h is None:
            return out
        line, headers, p = h
        r = {"request": req, "status_line": line, "status": int(line.split(" ")[1]), "headers": headers,
             "interim": interim, "start": start, "head_end": p, "body": Body(), "complete": True}
        out.append(r)
        if req["method"] == "HEAD" or r["status"] in (204, 304):
            pass
        elif header(headers, "transfer-encoding").lower() == "chunked":
            p, r["complete"] = read_chunked(s, p, r["body"])
        elif header(headers, "content-length"):
            n = int(header(headers, "content-length"))
            r["body"].add(p, s[p:p + n])
            r["complete"] = len(s) >= p + n
            p = min(p + n, len(s))
        else:
            r["body"].add(p, s[p:])
            r["complete"], p = closed, len(s)
        r["end"] = pos = p
    return out


def exchanges(conn: Conn) -> list[dict]:
    """Every request of a connection with its answer: {"request", "response" or None}."""
    requests = read_requests(conn.stream("c"))
    answers = read_responses(conn.stream("s"), requests, conn.end_of("s") == "fin")
    return [{"request": q, "response": answers[i] if i < len(answers) else None} for i, q in enumerate(requests)]


# -- SSE, WAV, PCM --------------------------------------------------------------------------------
def sse_events(body: Body) -> list[dict]:
    """Complete events, each with the stream offset just after its blank line."""
    out, pos, data = [], 0, bytes(body.data)
    while (e := data.find(b"\n\n", pos)) >= 0:
        ev = {"end": body.after(e + 2), "event": None, "data": ""}
        for ln in data[pos:e].split(b"\n"):
            k, _, v = ln.partition(b":")
            v = v[1:] if v.startswith(b" ") else v
            if k == b"event":
                ev["event"] = v.decode()
            elif k == b"data":
                ev["data"] += v.decode()
        out.append(ev)
        pos = e + 2
    return out


def wav_parts(b: bytes):
    """(sample rate, channels, bits, offset of the data, declared data size) of a RIFF file."""
    assert b[:4] == b"RIFF" and b[8:12] == b"WAVE", b[:16]
    pos, fmt = 12, None
    while pos + 8 <= len(b):
        cid, n = b[pos:pos + 4], int.from_bytes(b[pos + 4:pos + 8], "little")
        if cid == b"fmt ":
            _, ch, sr, _, _, bits = struct.unpack("<HHIIHH", b[pos + 8:pos + 24])
            fmt = (sr, ch, bits)
        if cid == b"data":
            return (*fmt, pos + 8, n)
        pos += 8 + n + (n & 1)
    raise ValueError("no data chunk")


class Pcm:
    """Collects decoded s16le with the stream offset at which each piece was complete."""

    def __init__(self, rate: int, channels: int = 1):
        self.rate, self.channels = rate, channels
        self.data = bytearray()
        self.playable = self.audible = None
        self.chunks = 0

    def feed(self, pcm: bytes, off) -> None:
        """off: the stream offset, or a function from the number of bytes of pcm to a stream offset."""
        if not pcm:
            return
        self.chunks += 1
        at = off if callable(off) else (lambda n: off)
        frame = 2 * self.channels
        need = -(-self.rate // 50) * frame
        had = len(self.data)
        self.data += pcm
        if self.playable is None and len(self.data) >= need:
            self.playable = at(need - had)
        if self.audible is None:
            for i in range(had // frame * frame, len(self.data) // frame * frame, 2):
                if abs(int.from_bytes(self.data[i:i + 2], "little", signed=True)) > 32:
                    self.audible = at((i // frame + 1) * frame - had)
                    break

    def samples(self) -> int:
        return len(self.data) // (2 * self.channels)


def sha256(b: bytes) -> str:
    return hashlib.sha256(b).hexdigest()


# -- what is allowed to differ between two runs of the same request ---------------------------------
VOLATILE = [
    (re.compile(rb'"(id|request_id)": ?"(?:chatcmpl|audio|speech|speech-batch|transcription|modelperm|ws|req)[-_][^"]*"'),
     rb'"\1":"#"'),
    (re.compile(rb'"(created|expires_at)": ?\d+'), rb'"\1":0'),
    (re.compile(rb'"(engine_time_s|[a-z_]*_ms)": ?[0-9.e-]+'), rb'"\1":0'),
    (re.compile(rb"(chatcmpl|speech|transcription)-[0-9a-zA-Z][0-9a-zA-Z-]*"), rb"\1-#"),
]
VOLATILE_HEADERS = {"date", "x-request-id", "x-sglang-omni-speech-id", "x-engine-time"}


def normal(body: bytes) -> bytes:
    for pattern, to in VOLATILE:
        body = pattern.sub(to, body)
    return body


def normal_headers(headers: list) -> list:
    return [(k, "#" if k.lower() in VOLATILE_HEADERS else v) for k, v in headers]
