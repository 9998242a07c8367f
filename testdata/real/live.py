"""Real WebSocket clients: the `websockets` and `aiohttp` packages, driven by a list of steps.

A session's view is what the client's own interface gave: every message in order, how many it sent, how it was closed.
Ids, tokens and clock values are taken out of it, so that two runs can be compared. All have timeouts.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field

from visit import TIMEOUT


@dataclass
class Send:
    """A text message. ask: the source of t_in, if it asks for a turn; ends: it ends the input of the turn."""

    message: dict
    ask: str | None = None
    ends: bool = False
    pause: float = 0.0  # after it, s: the protocol's pacing
    pieces: int = 1  # frames; `websockets` only
    samples: int = 0  # of 16 kHz sound in it


@dataclass
class Wait:
    """For the next event of the type, or "binary" message (count: for so many)."""

    kind: str
    count: int = 1


class Ping:
    """A ping of the client, and its pong."""


class Leave:
    """The connection is dropped without a close frame. The last step."""


class Drain:
    """Until the server has ended the connection. Without it the client closes at the end of its steps."""


@dataclass
class Visit:
    """One session to be: where, with which client, and what it does."""

    path: str
    steps: list
    client: str = "websockets"
    deflate: bool = False
    headers: dict = field(default_factory=dict)


def pcm(samples: int, level: int) -> bytes:
    """Sound: a square wave; level 0 is silence."""
    return b"".join((level if (i // 40) % 2 else -level).to_bytes(2, "little", signed=True) for i in range(samples))


def append(samples: int, level: int, pause: float = 0.0, **more) -> Send:
    data = base64.b64encode(pcm(samples, level)).decode()
    return Send({"type": "input_audio_buffer.append", "audio": data, **more}, pause=pause, samples=samples)


class Ended(Exception):
    """The connection ended while a step waited."""


class Seen:
    """What a client received."""

    def __init__(self):
        self.messages: list = []  # dict or bytes
        self.at = 0
        self.over = False
        self.news = asyncio.Event()

    def take(self, data: str | bytes) -> None:
        self.messages.append(json.loads(data) if isinstance(data, str) else data)
        self.news.set()

    def end(self) -> None:
        self.over = True
        self.news.set()

    async def until(self, kind: str | None, count: int = 1) -> None:
        """None: until the end."""
        while True:
            while self.at < len(self.messages):
                m = self.messages[self.at]
                self.at += 1
                if kind and label(m) == kind:
                    count -= 1
                    if not count:
                        return
            if self.over:
                if kind:
                    raise Ended(kind)
                return
            self.news.clear()
            await self.news.wait()


class Websockets:
    """The `websockets` package."""

    async def open(self, url: str, v: Visit):
        import websockets

        self.closed = websockets.ConnectionClosed
        self.ws = await websockets.connect(url, compression="deflate" if v.deflate else None, max_size=None,
                                           max_queue=None, ping_interval=None, additional_headers=v.headers)

    async def send(self, text: str, pieces: int) -> None:
        if pieces > 1:
            n = -(-len(text) // pieces)
            await self.ws.send(text[i:i + n] for i in range(0, len(text), n))
        else:
            await self.ws.send(text)

    async def ping(self) -> None:
        await (await self.ws.ping(b"omnitap"))

    async def read(self, seen: Seen) -> None:
        try:
            async for m in self.ws:
                seen.take(m)
        except self.closed:
            pass
        seen.end()

    async def close(self) -> None:
        await self.ws.close()

    def leave(self) -> None:
        self.ws.transport.abort()

    def code(self) -> int | None:
        return self.ws.close_code


class Aiohttp:
    """The `aiohttp` package."""

    async def open(self, url: str, v: Visit):
        import aiohttp

        self.kinds = {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}
        self.session = aiohttp.ClientSession()
        self.ws = await self.session.ws_connect(url, compress=15 if v.deflate else 0, max_msg_size=0, headers=v.headers)

    async def send(self, text: str, pieces: int) -> None:
        await self.ws.send_str(text)

    async def ping(self) -> None:
        await self.ws.ping(b"omnitap")

    async def read(self, seen: Seen) -> None:
        async for m in self.ws:
            if m.type in self.kinds:
                seen.take(m.data)
        seen.end()

    async def close(self) -> None:
        await self.ws.close()
        await self.session.close()

    def leave(self) -> None:
        self.ws._response.connection.transport.abort()

    def code(self) -> int | None:
        return self.ws.close_code


CLIENTS = {"websockets": Websockets, "aiohttp": Aiohttp}


async def steps(client, seen: Seen, todo: list) -> int:
    sent = 0
    for s in todo:
        if isinstance(s, Send):
            await client.send(json.dumps(s.message), s.pieces)
            sent += 1
            if s.pause:
                await asyncio.sleep(s.pause)
        elif isinstance(s, Wait):
            await seen.until(s.kind, s.count)
        elif isinstance(s, Ping):
            await client.ping()
        elif isinstance(s, Leave):
            client.leave()
        else:
            await seen.until(None)
    return sent


async def one(port: int, v: Visit) -> dict:
    client, seen, view = CLIENTS[v.client](), Seen(), {"sent": None, "error": None}
    await client.open(f"ws://127.0.0.1:{port}{v.path}", v)
    reader = asyncio.create_task(client.read(seen))
    try:
        view["sent"] = await asyncio.wait_for(steps(client, seen, v.steps), TIMEOUT)
    except Exception as e:  # each package has its own; it is a part of the view
        view["error"] = f"{type(e).__name__}: {e}"
    await client.close()
    await asyncio.wait_for(reader, TIMEOUT)
    return {**view, "messages": seen.messages, "close": client.code()}


def visit(port: int, visits: list[Visit]) -> list[dict]:
    """All sessions at once; a view each."""

    async def go():
        return await asyncio.gather(*(one(port, v) for v in visits))

    return asyncio.run(go())


# -- what is allowed to differ between two runs ----------------------------------------------------------
def is_volatile(key: str) -> bool:
    return key in VOLATILE or key.endswith(("_id", "_ids", "_ts_ms"))


VOLATILE = {"id", "created", "expires_at", "resume_token"}


def plain(x):
    """x without what two runs cannot have alike."""
    if isinstance(x, dict):
        return {k: "#" if is_volatile(k) and v is not None else plain(v) for k, v in x.items()}
    if isinstance(x, list):
        return [plain(v) for v in x]
    return x


def label(m) -> str:
    return m["type"] if isinstance(m, dict) else "binary"


def apart(ms: list) -> list[list]:
    """Events of text, of audio, receipts of sound, and the others: they come of several tasks that race each other."""
    out: list[list] = [[], [], [], []]
    for m in ms:
        kind = label(m)
        answer = kind.startswith("response.")
        out[0 if answer and "text" in kind else 1 if answer and "audio" in kind else 2 if kind.endswith(".accepted") else 3].append(m)
    return out
