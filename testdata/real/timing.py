"""How near omnitap's points lie to the clocks of those who sent the bytes.

    PYTHON testdata/real/timing.py --omnitap bin/omnitap [--requests 500] [--parallel 1] [--turns 300] [--omnitap-arg ARG]

A sender (a process of its own, plain sockets) answers each chat request with SSE and stamps CLOCK_MONOTONIC right
before and right after the send of the first text event and of the first audio event; the client stamps its send of the
request. The records' points are on the same clock. Then the same with turns over WebSockets: timing_ws.py.
PYTHON is that of testdata/clients/install.sh; with --turns 0 any 3.11 does.
Prints p50, p99 and max of (point - before) and (point - after) for t_in, t_text and t_audio in µs, and closes with
"N passed, M failed". A turn's points must also lie within 50 µs of the stamps around their send at p99, where the kernel
stamps: loopback delivers inside the send. On a busy machine the figures say as much about its scheduler as about omnitap: the limit is wide.
It does not measure what omnitap adds on the way to the client.
"""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import servers
import timing_ws

NEAR_US = 50  # of a turn's points from the stamps around their send, at p99
AHEAD = 200_000  # ns that a point may lie before the stamp before the send (clocks are converted)


# -- the sender -----------------------------------------------------------------------------------
def event(delta: dict, **more) -> bytes:
    d = {"id": "chatcmpl-t", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}
    data = b"data: " + json.dumps(d, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def wav(samples: int) -> bytes:
    pcm = b"".join(((k * 37) % 20001 - 10000).to_bytes(2, "little", signed=True) for k in range(samples))
    return (b"RIFF" + (36 + len(pcm)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + b"\1\0\1\0"
            + (24000).to_bytes(4, "little") + (48000).to_bytes(4, "little") + b"\2\0\x10\0data"
            + len(pcm).to_bytes(4, "little") + pcm)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = event({"role": "assistant", "content": ""}, modality="text")
TEXT = event({"content": "Hello"}, modality="text")
AUDIO = event({"role": "assistant", "content": base64.b64encode(wav(2400)).decode()}, modality="audio")
DONE = b"e\r\ndata: [DONE]\n\n\r\n"


def answer(s: socket.socket, rid: str) -> dict:
    stamps = {"id": rid}
    s.sendall(HEAD)
    s.sendall(ROLE)
    for name, data in (("t_text", TEXT), ("t_audio", AUDIO)):
        time.sleep(0.003)
        before = time.monotonic_ns()
        s.sendall(data)
        stamps[name] = (before, time.monotonic_ns())
    s.sendall(DONE)
    s.sendall(b"0\r\n\r\n")
    return stamps


def read_request(s: socket.socket) -> str | None:
    """The X-Request-Id of the next request; None at the end."""
    buf = b""
    while b"\r\n\r\n" not in buf:
        data = s.recv(65536)
        if not data:
            return None
        buf += data
    head, _, body = buf.partition(b"\r\n\r\n")
    fields = {k.strip().lower(): v.strip() for k, _, v in (x.partition(b":") for x in head.split(b"\r\n")[1:])}
    while len(body) < int(fields[b"content-length"]):
        body += s.recv(65536)
    return fields[b"x-request-id"].decode()


def serve_one(s: socket.socket, out, lock: threading.Lock) -> None:
    with s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (rid := read_request(s)) is not None:
            line = json.dumps(answer(s, rid)) + "\n"
            with lock:
                out.write(line)
                out.flush()


def sender(path: str) -> None:
    """Serves until it is ended; prints its port."""
    listener, lock = socket.create_server(("127.0.0.1", 0)), threading.Lock()
    print(listener.getsockname()[1], flush=True)
    with open(path, "w") as out:
        while True:
            s, _ = listener.accept()
            threading.Thread(target=serve_one, args=(s, out, lock), daemon=True).start()


# -- the client -----------------------------------------------------------------------------------
BODY = json.dumps({"model": "m", "stream": True, "modalities": ["text", "audio"],
                   "messages": [{"role": "user", "content": "Say hello."}]}).encode()


def visit(port: int, ids: list[str], sent: dict) -> None:
    """One request after the other on one connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for rid in ids:
            head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nX-Request-Id: {rid}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n").encode()
            before = time.monotonic_ns()
            s.sendall(head + BODY)
            sent[rid] = (before, time.monotonic_ns())
            got = b""
            while not got.endswith(b"\r\n0\r\n\r\n"):
                data = s.recv(65536)
                if not data:
                    raise SystemExit(f"{rid}: the answer was cut")
                got += data


# -- the figures ----------------------------------------------------------------------------------
def at(values: list[int], q: float) -> float:
    """Nearest rank, in µs."""
    v = sorted(values)
    return v[min(len(v) - 1, max(0, -(-int(q * len(v) * 1000) // 1000) - 1))] / 1000


def line(name: str, pairs: list[tuple[int, tuple[int, int]]]) -> str:
    out = []
    for what, i in (("before", 0), ("after", 1)):
        d = [p - s[i] for p, s in pairs]
        out.append(f"{what}: min {min(d) / 1000:.0f} p50 {at(d, .5):.0f} p99 {at(d, .99):.0f} max {max(d) / 1000:.0f}")
    return f"{name} - " + "  ".join(out) + f"  µs  n {len(pairs)}"


def report(records: dict, stamps: dict, sent: dict, limit: float, what: str = "") -> tuple[int, int]:
    results = [("records", len(records) == len(sent), f"{len(records)} of {len(sent)}")]
    for name, source in (("t_in", sent), ("t_text", {k: v["t_text"] for k, v in stamps.items()}),
                         ("t_audio", {k: v["t_audio"] for k, v in stamps.items()})):
        pairs = [(r["points"][name], source[k]) for k, r in records.items() if (r.get("points") or {}).get(name)]
        results.append((f"{name} measured", len(pairs) == len(sent), f"{len(pairs)} of {len(sent)}"))
        if not pairs:
            continue
        print(line(name, pairs))
        early = [p - s[0] for p, s in pairs if p < s[0] - AHEAD]
        results.append((f"{name} not before the send", not early, f"{len(early)} earlier, by up to {-min(early, default=0)} ns"))
        late = at([p - s[1] for p, s in pairs], .99)
        results.append((f"{name} p99 after the send", late <= limit, f"{late:.0f} µs, limit {limit:.0f}"))
    for name, ok, got in results:
        print(f"ok {what}{name}" if ok else f"FAIL {what}{name}: got {got}")
    return sum(ok for _, ok, _ in results), sum(not ok for _, ok, _ in results)


def run(a, work: pathlib.Path) -> tuple[int, int]:
    path = work / "stamps.jsonl"
    send = subprocess.Popen([sys.executable, __file__, "--sender", str(path)], stdout=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)
    try:
        tap = servers.Omnitap(a.omnitap, int(send.stdout.readline()), work, a.omnitap_arg)
        try:
            sent: dict = {}
            ids = [f"timing-{n}" for n in range(a.requests)]
            threads = [threading.Thread(target=visit, args=(tap.port, ids[k::a.parallel], sent)) for k in range(a.parallel)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(a.requests)
            records = {r["request_id"]: r for r in tap.records(a.requests, 20)}
        finally:
            tap.stop()
    finally:
        send.send_signal(signal.SIGKILL)
        send.wait(10)
    stamps = {d["id"]: d for d in map(json.loads, path.read_text().splitlines())}
    print(f"{a.requests} requests, {a.parallel} at a time, stamp {','.join(kinds(records))}")
    return report(records, stamps, sent, a.limit_us)


def kinds(records: dict) -> list[str]:
    return sorted({str(r.get("stamp")) for r in records.values()})


def run_turns(a, work: pathlib.Path) -> tuple[int, int]:
    records, stamps, sent = timing_ws.measure(a, work)
    print(f"{len(sent)} turns over WebSockets, stamp {','.join(kinds(records))}")
    passed, failed = report(records, stamps, sent, a.limit_us, "turn ")
    if kinds(records) != ["kernel"]:
        return passed, failed
    for name, source in (("t_in", sent), *((x, {k: v[x] for k, v in stamps.items()}) for x in ("t_text", "t_audio"))):
        out = [max(source[k][0] - r["points"][name], r["points"][name] - source[k][1], 0) for k, r in records.items()]
        ok = at(out, .99) <= NEAR_US
        print(f"{'ok' if ok else 'FAIL'} turn {name} p99 from the send: {at(out, .99):.0f} µs, max {max(out) / 1000:.0f}, limit {NEAR_US}")
        passed, failed = passed + ok, failed + (not ok)
    return passed, failed


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sender", metavar="FILE", help=argparse.SUPPRESS)
    ap.add_argument("--omnitap", help="the binary")
    ap.add_argument("--omnitap-arg", action="append", default=[], help="one more argument for omnitap serve; repeatable")
    ap.add_argument("--requests", type=int, default=500)
    ap.add_argument("--parallel", type=int, default=1)
    ap.add_argument("--turns", type=int, default=300, help="over WebSockets; default 300")
    ap.add_argument("--limit-us", type=float, default=5000, help="of p99 of (point - after); default 5000")
    a = ap.parse_args()
    if a.sender:
        sender(a.sender)
    if not a.omnitap or not shutil.which(a.omnitap):
        ap.error("--omnitap: no such program")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = pathlib.Path(tempfile.mkdtemp(prefix="omnitap-timing-"))
    try:
        passed, failed = run(a, work)
        if a.turns:
            passed, failed = (x + y for x, y in zip((passed, failed), run_turns(a, work)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
