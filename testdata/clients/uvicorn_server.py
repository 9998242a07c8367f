"""A small FastAPI app under the real uvicorn, with either of its HTTP parsers; no model, fixed answers.

    PYTHON uvicorn_server.py --http h11|httptools --port 0

Prints the port as the first line of standard output once it accepts connections; SIGTERM ends it.
| path | |
| POST /v1/chat/completions | SSE (or JSON without stream): text and WAV events in vLLM-Omni's form, then [DONE] |
| POST /v1/audio/speech | raw audio/pcm, chunked; "response_format": "wav" with length |
| any /echo | JSON: method, path, query, http_version, headers as received (names in lower case), body_bytes, body_sha256 |
| POST /limited | reads 64 KiB of the body, then answers 413 and closes |
| GET /bytes?n=N | N bytes with Content-Length |
| GET /health | empty 200 |
| WS /ws/echo | sends every message back |
Body fields of chat and speech: "texts" (list), "chunks", "samples", "gap_ms" (10), "first_ms" (0), "break_at" (audio
chunk before which the handler raises: the body is cut). It knows nothing of either server's errors.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import socket


def pcm(start: int, count: int) -> bytes:
    """A ramp: a lost, repeated or moved sample shows as a step other than +1."""
    return b"".join((k % 20001 - 10000).to_bytes(2, "little", signed=True) for k in range(start, start + count))


def wav(data: bytes) -> bytes:
    return (b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + b"\1\0\1\0"
            + (24000).to_bytes(4, "little") + (48000).to_bytes(4, "little") + b"\2\0\x10\0data"
            + len(data).to_bytes(4, "little") + data)


async def pieces(spec: dict):
    """The audio chunks of a request, paced."""
    count, samples = spec.get("chunks", 3), spec.get("samples", 1200)
    await asyncio.sleep(spec.get("first_ms", 0) / 1000)
    for n in range(count):
        if n:
            await asyncio.sleep(spec.get("gap_ms", 10) / 1000)
        if n == spec.get("break_at"):
            raise RuntimeError("told to break")
        yield pcm(n * samples, samples)


def chat_event(delta: dict, modality: str, finish: str | None = None) -> bytes:
    d = {"id": "chatcmpl-uvicorn", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "modality": modality}
    return b"data: " + json.dumps(d, separators=(",", ":")).encode() + b"\n\n"


async def chat_stream(spec: dict):
    yield chat_event({"role": "assistant", "content": ""}, "text")
    for text in spec.get("texts", ["Hel", "lo."]):
        yield chat_event({"content": text}, "text")
    if "audio" in (spec.get("modalities") or ["text", "audio"]):
        async for p in pieces(spec):
            yield chat_event({"role": "assistant", "content": base64.b64encode(wav(p)).decode()}, "audio")
    yield chat_event({}, "text", "stop")
    yield b"data: [DONE]\n\n"


async def chat_whole(spec: dict) -> dict:
    audio = b"".join([p async for p in pieces(spec)])
    message = {"role": "assistant", "content": "".join(spec.get("texts", ["Hel", "lo."])),
               "audio": {"id": "audio-1", "data": base64.b64encode(wav(audio)).decode(), "expires_at": 0, "transcript": ""}}
    return {"id": "chatcmpl-uvicorn", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def app():
    from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
    from fastapi.responses import JSONResponse, Response, StreamingResponse

    # FastAPI resolves annotations in the module's names.
    globals().update(Request=Request, WebSocket=WebSocket)
    api = FastAPI()

    @api.post("/v1/chat/completions")
    async def chat(request: Request):
        spec = await request.json()
        if spec.get("stream"):
            return StreamingResponse(chat_stream(spec), media_type="text/event-stream")
        return JSONResponse(await chat_whole(spec))

    @api.post("/v1/audio/speech")
    async def speech(request: Request):
        spec = await request.json()
        if spec.get("response_format") == "wav":
            return Response(wav(b"".join([p async for p in pieces(spec)])), media_type="audio/wav")
        return StreamingResponse(pieces(spec), media_type="audio/pcm")

    @api.api_route("/echo", methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    async def echo(request: Request):
        sha, size = hashlib.sha256(), 0
        async for piece in request.stream():
            sha.update(piece)
            size += len(piece)
        return {"method": request.method, "path": request.url.path, "query": request.url.query,
                "http_version": request.scope["http_version"],
                "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in request.scope["headers"]],
                "body_bytes": size, "body_sha256": sha.hexdigest()}

    @api.post("/limited")
    async def limited(request: Request):
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size >= 65536:
                break
        return JSONResponse({"error": {"message": "too large", "code": 413}}, 413, {"connection": "close"})

    @api.get("/bytes")
    async def some_bytes(n: int = 1000):
        return Response(bytes(i % 251 for i in range(n)), media_type="application/octet-stream")

    @api.get("/health")
    async def health():
        return Response()

    @api.websocket("/ws/echo")
    async def ws_echo(ws: WebSocket):
        await ws.accept()
        try:
            while True:
                m = await ws.receive()
                if m["type"] == "websocket.disconnect":
                    return
                await (ws.send_text(m["text"]) if m.get("text") is not None else ws.send_bytes(m["bytes"]))
        except WebSocketDisconnect:
            pass

    return api


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--http", choices=["h11", "httptools"], default="h11")
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--keep-alive", type=int, default=5, help="seconds")
    a = ap.parse_args()

    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            print(sock.getsockname()[1], flush=True)

    sock = socket.create_server(("127.0.0.1", a.port))
    config = uvicorn.Config(app(), http=a.http, loop="asyncio", log_level="critical", timeout_keep_alive=a.keep_alive,
                            timeout_graceful_shutdown=2)
    Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
