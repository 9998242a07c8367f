"""Real clients: each function returns a job(ctx) that does a scenario's work against ctx.port.

A job returns its view: what the client's own interface gave, in a form that can be compared between two runs. Errors
of the client belong to the view. Nothing here looks at bytes on the wire; wire.Recorder does. All have timeouts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass

import wire

TIMEOUT = 60.0


@dataclass
class Context:
    port: int
    prefix: str  # of the X-Request-Id of each request; "" sends none

    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def headers(self, n: int = 0) -> dict:
        return {"X-Request-Id": f"{self.prefix}-{n}"} if self.prefix else {}


@dataclass
class Step:
    """One request of a client that is driven step by step."""

    path: str
    json: dict | None = None
    method: str = "POST"
    content: bytes | None = None
    form: dict | None = None  # with a small WAV upload
    chunked: bool = False  # send the body with chunked framing
    stop_after: int | None = None  # leave after this many body bytes

    def payload(self) -> bytes | None:
        return self.content if self.json is None else json.dumps(self.json).encode()

    def type(self) -> dict:
        return {"content-type": "application/json"} if self.payload() is not None else {}


def tone_wav(seconds: float) -> bytes:
    pcm = b"".join((3000 if (i // 40) % 2 else -3000).to_bytes(2, "little", signed=True)
                   for i in range(int(16000 * seconds)))
    return (b"RIFF" + (36 + len(pcm)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
            + b"\1\0\1\0" + (16000).to_bytes(4, "little") + (32000).to_bytes(4, "little") + b"\2\0\x10\0"
            + b"data" + len(pcm).to_bytes(4, "little") + pcm)


def failure(e: Exception) -> str:
    return type(e).__name__ + ": " + wire.normal(str(e).encode()).decode()[:120]


# -- openai ---------------------------------------------------------------------------------------
CHAT = {"model", "messages", "stream", "modalities", "stream_options"}
SPEECH = {"model", "voice", "input", "response_format", "stream_format", "speed"}


def openai_client(ctx: Context):
    import openai

    return openai.OpenAI(base_url=ctx.base() + "/v1", api_key="none", max_retries=0, timeout=TIMEOUT)


def split(body: dict, own: set) -> dict:
    """Keyword arguments for the client: what it does not know as its own goes into extra_body."""
    return {**{k: v for k, v in body.items() if k in own},
            "extra_body": {k: v for k, v in body.items() if k not in own}}


def audio_of(event: dict, choice: dict) -> str | None:
    """The base64 of one chat event in either server's form."""
    delta = choice.get("delta") or choice.get("message") or {}
    if (delta.get("audio") or {}).get("data"):
        return delta["audio"]["data"]
    return delta.get("content") if event.get("modality") == "audio" else None


def openai_chat(body: dict, stop_after: int | None = None):
    """The openai client; a stream is left after stop_after events."""

    def job(ctx: Context) -> dict:
        import openai

        seen = {"text": "", "audio": b"", "events": 0, "finish": [], "error": None}

        def take(event: dict) -> None:
            seen["events"] += 1
            for c in event.get("choices") or []:
                audio = audio_of(event, c)
                if audio:
                    seen["audio"] += base64.b64decode(audio)
                elif event.get("modality") != "audio":
                    seen["text"] += (c.get("delta") or c.get("message") or {}).get("content") or ""
                seen["finish"] += [c["finish_reason"]] if c.get("finish_reason") else []

        with openai_client(ctx) as client:
            try:
                answer = client.chat.completions.create(extra_headers=ctx.headers(), **split(body, CHAT))
                for event in (answer if body.get("stream") else [answer]):
                    take(event.model_dump())
                    if stop_after and seen["events"] >= stop_after:
                        answer.close()
                        break
            except (openai.OpenAIError, OSError) as e:
                seen["error"] = failure(e)
        return {**seen, "audio": len(seen["audio"]), "sha256": wire.sha256(seen["audio"])}

    return job


def openai_speech(body: dict):
    """The openai client's with_streaming_response."""

    def job(ctx: Context) -> dict:
        import openai

        data, seen = b"", {"type": None, "error": None}
        with openai_client(ctx) as client:
            try:
                with client.audio.speech.with_streaming_response.create(extra_headers=ctx.headers(), **split(body, SPEECH)) as r:
                    seen["type"] = r.headers.get("content-type")
                    for piece in r.iter_bytes():
                        data += piece
            except Exception as e:  # httpx errors come through as they are
                seen["error"] = failure(e)
        return {**seen, "bytes": len(data), "sha256": wire.sha256(wire.normal(data))}

    return job


def openai_transcription(**kw):
    def job(ctx: Context) -> dict:
        import openai

        seen = {"text": "", "events": 0, "error": None}
        with openai_client(ctx) as client:
            try:
                r = client.audio.transcriptions.create(file=("tone.wav", tone_wav(0.4), "audio/wav"), **kw,
                                                       extra_headers=ctx.headers())
                for e in (r if kw.get("stream") else [r]):
                    seen["events"] += 1
                    seen["text"] += getattr(e, "delta", None) or getattr(e, "text", None) or ""
            except openai.OpenAIError as e:
                seen["error"] = failure(e)
        return seen

    return job


# -- httpx, aiohttp -------------------------------------------------------------------------------
def httpx_steps(*steps: Step):
    """Several requests one after the other on one kept connection."""

    def one(client, ctx: Context, n: int, step: Step) -> dict:
        import httpx

        kw = {"headers": {**step.type(), **ctx.headers(n)}}
        if step.form is not None:
            kw["data"], kw["files"] = step.form, {"file": ("tone.wav", tone_wav(0.4), "audio/wav")}
        elif step.payload() is not None:
            up = step.payload()
            kw["content"] = (up[i:i + 1000] for i in range(0, len(up), 1000)) if step.chunked else up
        seen, data = {"status": None, "error": None}, b""
        try:
            with client.stream(step.method, step.path, **kw) as r:
                seen["status"] = r.status_code
                for piece in r.iter_raw():
                    data += piece
                    if step.stop_after and len(data) >= step.stop_after:
                        return {**seen, "left": True}
        except httpx.TransportError as e:
            seen["error"] = failure(e)
        return {**seen, "bytes": len(data)}

    def job(ctx: Context) -> list:
        import httpx

        with httpx.Client(base_url=ctx.base(), timeout=TIMEOUT, limits=httpx.Limits(max_connections=1)) as client:
            return [one(client, ctx, n, s) for n, s in enumerate(steps)]

    return job


def httpx_parallel(count: int, step: Step):
    """The same request on `count` connections at once."""

    def job(ctx: Context) -> list:
        out: list = [None] * count

        def run(n: int) -> None:
            out[n] = httpx_steps(step)(Context(ctx.port, f"{ctx.prefix}{n}"))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(TIMEOUT)
        return out

    return job


def aiohttp_steps(*steps: Step):
    """The same with aiohttp."""

    async def one(session, ctx: Context, n: int, step: Step) -> dict:
        import aiohttp

        seen, size = {"status": None, "error": None}, 0
        try:
            async with session.request(step.method, ctx.base() + step.path, data=step.payload(),
                                       headers={**step.type(), **ctx.headers(n)}) as r:
                seen["status"] = r.status
                async for data in r.content.iter_any():
                    size += len(data)
                    if step.stop_after and size >= step.stop_after:
                        r.close()
                        return {**seen, "left": True}
        except (aiohttp.ClientError, OSError) as e:
            return {**seen, "error": type(e).__name__}
        return {**seen, "bytes": size}

    async def go(ctx: Context) -> list:
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1),
                                         timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
            return [await one(session, ctx, n, s) for n, s in enumerate(steps)]

    return lambda ctx: asyncio.run(go(ctx))


# -- curl -----------------------------------------------------------------------------------------
def curl(*steps: Step, options: tuple = ("--http1.1",), head: bool = False):
    """curl -N; several URLs in one call share a connection. The view: exit code, status, connects and size of each."""

    def job(ctx: Context) -> dict:
        with tempfile.TemporaryDirectory() as tmp:
            argv = ["curl"]
            for n, s in enumerate(steps):
                argv += ["--next"] if n else []
                argv += ["-sS", "-N", "--max-time", "60", *options, "-o", os.path.join(tmp, f"body{n}"), "-w",
                         "%{http_code} %{num_connects} %{size_download} %{http_version}\n"]
                if s.payload() is not None:
                    with open(os.path.join(tmp, f"up{n}"), "wb") as f:
                        f.write(s.payload())
                    argv += ["--data-binary", "@" + f.name]
                argv += ["-I"] if head else ["-X", s.method] if s.method not in ("GET", "POST") else []
                for k, v in {**s.type(), **ctx.headers(n)}.items():
                    argv += ["-H", f"{k}: {v}"]
                argv.append(ctx.base() + s.path)
            done = subprocess.run(argv, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL)
        return {"exit": done.returncode, "out": done.stdout.splitlines()}

    return job


# -- a plain socket -------------------------------------------------------------------------------
def plain_socket(*steps: Step, version: str = "1.1", together: bool = False, half_close: bool = False,
                 reset_after: int | None = None, byte_by_byte: bool = False, late_body: bool = False):
    """Writes each request, reads its answer, then the next; together: all in one write. Leaves with a FIN, or a reset.

    late_body: the first request's body is sent only after its answer, as a client does whose server is quicker.
    """

    def raw(ctx: Context, n: int, s: Step) -> bytes:
        body = s.payload() or b""
        head = [f"{s.method} {s.path} HTTP/{version}", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        head += [f"{k}: {v}" for k, v in {**s.type(), **ctx.headers(n)}.items()]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    def job(ctx: Context) -> dict:
        raws = [raw(ctx, n, s) for n, s in enumerate(steps)]
        got = b""
        with socket.create_connection(("127.0.0.1", ctx.port), timeout=TIMEOUT) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for n, piece in enumerate([b"".join(raws)] if together else raws):
                if byte_by_byte:
                    for i in range(len(piece)):
                        s.sendall(piece[i:i + 1])
                elif late_body and n == 0:
                    head, _, late = piece.partition(b"\r\n\r\n")
                    s.sendall(head + b"\r\n\r\n")
                else:
                    s.sendall(piece)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
                want = len(steps) if together else n + 1
                while answers(got, steps) < want:
                    data = s.recv(65536)
                    if not data:
                        return {"closed": True, "answers": answers(got, steps)}
                    got += data
                    if reset_after and len(got) >= reset_after:
                        wire.linger0(s)
                        return {"reset": True}
                if late_body and n == 0:
                    s.sendall(late)
        return {"answers": answers(got, steps)}

    return job


def answers(got: bytes, steps) -> int:
    """How many answers are whole."""
    rs = wire.read_responses(got, [{"method": s.method} for s in steps], False)
    return sum(r["complete"] for r in rs)


def occupied(body: dict, path: str, job, wait: float = 0.6):
    """Runs job while another request (straight to the server, not through ctx.port) holds its only place."""

    def run(ctx: Context, server_port: int):
        other = threading.Thread(target=httpx_steps(Step(path, body)), args=(Context(server_port, ""),))
        other.start()
        time.sleep(wait)
        try:
            return job(ctx)
        finally:
            other.join(TIMEOUT)

    run.needs_server = True
    return run
