"""Sessions with aiohttp's client; prints a JSON list.

    PYTHON ws_aiohttp.py --base http://127.0.0.1:PORT --plan JSON

Plan and output: ws_steps.py. "deflate": the window bits, 9 to 15, or 0 for none (aiohttp's own default). It cannot send
a message in pieces.
"""

import ws_steps


async def drive(step: dict, url: str, out: dict) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        try:
            ws = await session.ws_connect(url, protocols=step.get("protocols", ()), compress=step.get("deflate", 0),
                                          autoping=False, max_msg_size=0)
        except aiohttp.WSServerHandshakeError as e:
            out["status"] = e.status
            raise
        out.update(status=101, protocol=ws.protocol or "", extensions=f"bits {ws.compress} reset {ws.client_notakeover}")
        if step.get("ping"):
            await ws.ping(step["ping"].encode())
            m = await ws.receive()
            if m.type == aiohttp.WSMsgType.PONG:
                out["pong"] = bytes(m.data).decode()
        for kind, size in step.get("send", []):
            m = ws_steps.message(kind, size)
            await (ws.send_str(m) if kind == "text" else ws.send_bytes(m))
            if "/ws/echo" in step["path"]:
                out["got"].append(ws_steps.echo(m, (await ws.receive()).data))
        if "close" in step:
            c = step["close"]
            await (ws.close(code=c["code"], message=c.get("reason", "").encode()) if c else ws.close())
            out["close"] = {"code": ws.close_code or 0, "reason": ""}
        else:
            m = await ws.receive()
            out["close"] = {"code": m.data or 0, "reason": m.extra or ""} if m.type == aiohttp.WSMsgType.CLOSE else {"code": 0, "reason": str(m.type)}


if __name__ == "__main__":
    ws_steps.main(__doc__, drive)
