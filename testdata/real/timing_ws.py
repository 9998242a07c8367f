"""The sender and the client of timing.py's WebSocket part: turns of vLLM-Omni's turn realtime.

The sender is uvicorn with the `websockets` package, as the servers are; it stamps CLOCK_MONOTONIC right before and right
after the send of the first text event and of the first audio event of each turn. The client, of the same package,
stamps its send of the commit that asks for the turn. Needs the clients' environment.

A few ms lie between the sends: what the kernel hands over in one read has one stamp, that of its last segment.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import servers

SESSIONS = 3
PATH = "/v1/realtime"
SOUND = base64.b64encode(b"".join(((k * 37) % 20001 - 10000).to_bytes(2, "little", signed=True) for k in range(2400))).decode()
TEXT = json.dumps({"type": "transcription.delta", "delta": "Hello"})
AUDIO = json.dumps({"type": "response.audio.delta", "audio": SOUND, "format": "pcm16", "sample_rate_hz": 24000})
DONE = [json.dumps({"type": "transcription.done", "text": "Hello", "usage": {}}), json.dumps({"type": "response.audio.done", "has_audio": True})]


# -- the sender ---------------------------------------------------------------------------------------
async def answer(send, stamps: dict) -> None:
    for name, data in (("t_text", TEXT), ("t_audio", AUDIO)):
        await asyncio.sleep(0.003)
        before = time.monotonic_ns()
        await send({"type": "websocket.send", "text": data})
        stamps[name] = (before, time.monotonic_ns())
    await asyncio.sleep(0.003)
    for data in DONE:
        await send({"type": "websocket.send", "text": data})


def app(out):
    async def serve(scope, receive, send):
        if scope["type"] != "websocket":
            return
        name = dict(scope["headers"])[b"x-request-id"].decode()
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": json.dumps({"type": "session.created", "id": "sess-t", "created": 1})})
        n = 0
        while (got := await receive())["type"] == "websocket.receive":
            m = json.loads(got["text"])
            if m["type"] == "input_audio_buffer.commit" and m["final"]:
                stamps = {"id": f"{name}-t{n}"}
                await answer(send, stamps)
                out.write(json.dumps(stamps) + "\n")
                out.flush()
                n += 1

    return serve


def sender(path: str) -> None:
    """Serves until it is ended; prints its port."""
    import uvicorn

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio turns Nagle off only where the protocol is named
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    with open(path, "w") as out:
        config = uvicorn.Config(app(out), ws="websockets-sansio", log_level="error", lifespan="off", ws_per_message_deflate=False)
        uvicorn.Server(config).run(sockets=[listener])


# -- the client ---------------------------------------------------------------------------------------
async def session(port: int, name: str, count: int, sent: dict) -> None:
    import websockets

    async with websockets.connect(f"ws://127.0.0.1:{port}{PATH}", compression=None, additional_headers={"X-Request-Id": name}) as ws:
        await ws.recv()
        await ws.send(json.dumps({"type": "session.update", "model": "m"}))
        for n in range(count):
            commit = json.dumps({"type": "input_audio_buffer.commit", "final": False})
            before = time.monotonic_ns()
            await ws.send(commit)
            sent[f"{name}-t{n}"] = (before, time.monotonic_ns())
            await asyncio.sleep(0.003)
            await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": SOUND}))
            await ws.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
            while json.loads(await ws.recv())["type"] != "response.audio.done":
                pass


def measure(a, work) -> tuple[dict, dict, dict]:
    """Records, the sender's stamps and the client's, each by the turn's request id."""
    path = work / "stamps-ws.jsonl"
    send = subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                            preexec_fn=servers.die_with_parent)
    try:
        tap = servers.Omnitap(a.omnitap, int(send.stdout.readline()), work, a.omnitap_arg)
        try:
            sent: dict = {}
            for n in range(SESSIONS):
                asyncio.run(asyncio.wait_for(session(tap.port, f"turns-{n}", a.turns // SESSIONS, sent), 120))
            records = {r["request_id"]: r for r in tap.records(len(sent), 20)}
        finally:
            tap.stop()
    finally:
        send.send_signal(signal.SIGKILL)
        send.wait(10)
    return records, {d["id"]: d for d in map(json.loads, path.read_text().splitlines())}, sent


if __name__ == "__main__":
    sender(sys.argv[1])
