"""Several exchanges with aiohttp on one kept connection; prints a JSON list.

    PYTHON aiohttp_stream.py --base http://127.0.0.1:PORT [--step 'METHOD PATH [JSON]' …]

Each entry: {"status", "http", "bytes", "sha256", "content_type", "new_connection", "error"}; false in all but the
first means that the connection was kept. An error of the client is a value, not an exit code.
"""

import asyncio
import hashlib
import json

import steps


async def one(session, made: list, a, n: int) -> dict:
    import aiohttp

    method, path, body, headers, leave = steps.request(a, n)
    out = {"status": None, "http": None, "bytes": 0, "sha256": None, "content_type": None, "new_connection": None, "error": None}
    sha, before = hashlib.sha256(), len(made)
    try:
        async with session.request(method, a.base + path, data=body, headers=headers) as r:
            out.update(status=r.status, http=f"HTTP/{r.version.major}.{r.version.minor}", content_type=r.headers.get("content-type"))
            out["new_connection"] = len(made) > before
            async for piece in r.content.iter_any():
                sha.update(piece)
                out["bytes"] += len(piece)
                if leave and out["bytes"] >= leave:
                    r.close()
                    break
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as e:
        out["error"] = f"{type(e).__name__}: {e}"
    return {**out, "sha256": sha.hexdigest()}


async def run(a) -> list:
    import aiohttp

    made: list = []

    async def note(*_) -> None:
        made.append(1)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(note)
    async with aiohttp.ClientSession(trace_configs=[trace], connector=aiohttp.TCPConnector(limit=1),
                                     timeout=aiohttp.ClientTimeout(total=a.timeout)) as session:
        return [await one(session, made, a, n) for n in range(len(a.step))]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(steps.parse(__doc__)))))
