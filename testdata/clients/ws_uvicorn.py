"""A FastAPI app with WebSocket routes under the real uvicorn, with any of its three WebSocket implementations.

    PYTHON ws_uvicorn.py --ws websockets|websockets-sansio|wsproto --port 0

Prints the port as the first line of standard output once it accepts connections; SIGTERM ends it.
| path (each with ?key=K) | |
| WS /ws/echo | takes the subprotocol realtime where offered; sends every message back |
| WS /ws/close&code=C&reason=R | closes so behind the first message; without code as the server does by itself |
| WS /ws/refuse&status=S | answers the upgrade with S |
| GET /ws/log&n=N | waits until N sessions of key K have ended, and tells (and forgets) what the server saw of them |
ws_server.js and the Go servers of the tests have the same paths.
"""

import argparse
import asyncio
import hashlib
import socket


def app():
    from fastapi import FastAPI, WebSocket
    from fastapi.responses import PlainTextResponse

    globals().update(WebSocket=WebSocket)  # FastAPI resolves annotations in the module's names
    api = FastAPI()
    sessions: dict = {}
    ended = asyncio.Condition()

    async def note(ws, key: str, seen: list, last: dict) -> None:
        async with ended:
            sessions.setdefault(key, []).append({
                "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in ws.scope["headers"]],
                "offered": ws.scope["subprotocols"], "messages": seen, "close": [last.get("code"), last.get("reason")]})
            ended.notify_all()

    async def receive(ws, seen: list) -> dict:
        m = await ws.receive()
        if m["type"] == "websocket.receive":
            kind = "text" if m.get("text") is not None else "binary"
            data = m["text"].encode() if kind == "text" else m["bytes"]
            seen.append([kind, len(data), hashlib.sha256(data).hexdigest()])
        return m

    @api.websocket("/ws/echo")
    async def echo(ws: WebSocket, key: str):
        await ws.accept("realtime" if "realtime" in ws.scope["subprotocols"] else None)
        seen: list = []
        while (m := await receive(ws, seen))["type"] != "websocket.disconnect":
            await (ws.send_text(m["text"]) if seen[-1][0] == "text" else ws.send_bytes(m["bytes"]))
        await note(ws, key, seen, m)

    @api.websocket("/ws/close")
    async def close(ws: WebSocket, key: str, code: int | None = None, reason: str | None = None):
        await ws.accept()
        seen: list = []
        await receive(ws, seen)
        await (ws.close() if code is None else ws.close(code, reason))
        await note(ws, key, seen, {})

    @api.websocket("/ws/refuse")
    async def refuse(ws: WebSocket, status: int):
        await ws.send_denial_response(PlainTextResponse("refused", status))

    @api.get("/ws/log")
    async def log(key: str, n: int):
        async with ended:
            await ended.wait_for(lambda: len(sessions.get(key, [])) >= n)
            return sessions.pop(key, [])

    return api


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ws", choices=["websockets", "websockets-sansio", "wsproto"], default="websockets")
    ap.add_argument("--port", type=int, default=0)
    a = ap.parse_args()

    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            print(sock.getsockname()[1], flush=True)

    sock = socket.create_server(("127.0.0.1", a.port))
    config = uvicorn.Config(app(), ws=a.ws, loop="asyncio", log_level="critical", timeout_graceful_shutdown=2)
    Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
