"""Sessions with the websockets library (its asyncio client); prints a JSON list.

    PYTHON ws_websockets.py --base http://127.0.0.1:PORT --plan JSON

Plan and output: ws_steps.py. "deflate": false for none, or {"client_bits", "server_bits", "client_reset", "server_reset"}
for an offer with these window bits (null: not said) and without context takeover.
"""

import ws_steps


def offer(deflate):
    from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

    if deflate is None:
        return {}
    if deflate is False:
        return {"compression": None}
    return {"compression": None, "extensions": [ClientPerMessageDeflateFactory(
        server_no_context_takeover=deflate.get("server_reset", False),
        client_no_context_takeover=deflate.get("client_reset", False),
        server_max_window_bits=deflate.get("server_bits"),
        client_max_window_bits=deflate.get("client_bits", True))]}


async def drive(step: dict, url: str, out: dict) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    try:
        ws = await connect(url, subprotocols=step.get("protocols"), max_size=None, proxy=None, ping_interval=None,
                           **offer(step.get("deflate")))
    except InvalidStatus as e:
        out["status"] = e.response.status_code
        raise
    out.update(status=101, protocol=ws.subprotocol or "", extensions=ws.response.headers.get("Sec-WebSocket-Extensions", ""))
    try:
        await talk(ws, step, out)
        if "close" in step:
            await ws.close(**step["close"])
        await ws.recv()
    except ConnectionClosed as e:
        out["close"] = {"code": e.rcvd.code if e.rcvd else 0, "reason": e.rcvd.reason if e.rcvd else ""}
        if not e.rcvd or not e.sent:
            raise
    finally:
        await ws.close()


async def talk(ws, step: dict, out: dict) -> None:
    async def ping() -> None:
        if step.get("ping"):
            await (await ws.ping(step["ping"]))  # the library checks the payload
            out["pong"] = step["ping"]

    await ping()
    for kind, size in step.get("send", []):
        m = ws_steps.message(kind, size)
        await ws.send(m)
        if "/ws/echo" in step["path"]:
            out["got"].append(ws_steps.echo(m, await ws.recv()))
    if step.get("pieces"):
        whole = "".join("x" * size for size in step["pieces"])

        async def pieces():
            for n, size in enumerate(step["pieces"]):
                if n:
                    await ping()
                yield "x" * size

        await ws.send(pieces())
        out["got"].append(ws_steps.echo(whole, await ws.recv()))


if __name__ == "__main__":
    ws_steps.main(__doc__, drive)
