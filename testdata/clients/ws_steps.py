"""What ws_websockets.py and ws_aiohttp.py share: the plan, its messages and the loop over it. Not run by itself.

A plan is a JSON list of steps, each a connection of its own:
    {"name", "path", "protocols": [..], "deflate": .., "send": [[TYPE, SIZE], ..], "ping": TEXT, "pieces": [SIZE, ..],
     "close": {"code", "reason"}}
"send" waits for the echo of each message. "pieces" is one text in so many frames, a ping with "ping" ahead of each but
the first. Without "close" the server is waited for; with an empty one the client's plain close is called. "deflate": how
to offer compression, in the client's own terms (each script tells); left out: as the client does by itself.
The value printed is a list of
    {"name", "status", "protocol", "extensions", "got": ["TYPE SIZE same" or "TYPE SIZE differs", ..], "pong", "close": {"code", "reason"}, "error"}
"""

import argparse
import asyncio
import json

LIMIT = 30  # seconds a step


def text(size: int) -> str:
    """Characters of 1 to 4 bytes: size bytes of UTF-8."""
    return "aé€😀" * (size // 10) + "x" * (size % 10)


def binary(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


def message(kind: str, size: int):
    return text(size) if kind == "text" else binary(size)


def echo(sent, got) -> str:
    kind = "text" if isinstance(got, str) else "binary"
    return f"{kind} {len(got.encode() if kind == 'text' else got)} {'same' if got == sent else 'differs'}"


def main(doc: str, drive) -> None:
    """Runs drive(step, url, out) for each step and prints what it left in out."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base", required=True)
    ap.add_argument("--plan", required=True, type=json.loads, help="see ws_steps.py")
    a = ap.parse_args()
    base = "ws" + a.base.rstrip("/").removeprefix("http")

    async def run() -> list:
        results = []
        for step in a.plan:
            out = {"name": step["name"], "status": 0, "protocol": "", "extensions": "", "got": [], "pong": "",
                   "close": {"code": 0, "reason": ""}, "error": ""}
            try:
                await asyncio.wait_for(drive(step, base + step["path"], out), LIMIT)
            except Exception as e:
                out["error"] = out["error"] or f"{type(e).__name__}: {e}"
            results.append(out)
        return results

    print(json.dumps(asyncio.run(run())))
