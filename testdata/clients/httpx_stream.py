"""Several exchanges with httpx on one kept connection; prints a JSON list.

    PYTHON httpx_stream.py --base http://127.0.0.1:PORT [--step 'METHOD PATH [JSON]' …]

Each entry: {"status", "http", "bytes", "sha256", "content_type", "new_connection", "error"}; false in all but the
first means that the connection was kept. An error of the client is a value, not an exit code.
"""

import hashlib
import json

import steps


def one(client, ports: list, a, n: int) -> dict:
    import httpx

    method, path, body, headers, leave = steps.request(a, n)
    out = {"status": None, "http": None, "bytes": 0, "sha256": None, "content_type": None, "new_connection": None, "error": None}
    sha = hashlib.sha256()
    try:
        with client.stream(method, path, content=body, headers=headers) as r:
            port = r.extensions["network_stream"].get_extra_info("client_addr")[1]
            out.update(status=r.status_code, http=r.http_version, content_type=r.headers.get("content-type"),
                       new_connection=port not in ports)
            ports.append(port)
            for piece in r.iter_raw():
                sha.update(piece)
                out["bytes"] += len(piece)
                if leave and out["bytes"] >= leave:
                    break
    except httpx.HTTPError as e:
        out["error"] = f"{type(e).__name__}: {e}"
    return {**out, "sha256": sha.hexdigest()}


def main() -> None:
    a = steps.parse(__doc__)

    import httpx

    with httpx.Client(base_url=a.base, timeout=a.timeout, limits=httpx.Limits(max_connections=1)) as client:
        ports: list = []
        print(json.dumps([one(client, ports, a, n) for n in range(len(a.step))]))


if __name__ == "__main__":
    main()
