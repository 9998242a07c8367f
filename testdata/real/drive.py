"""Real clients against a real server, directly and through omnitap: nobody may see a difference, and the records must
say what the engine says.

    PYTHON testdata/real/drive.py --server vllm-omni|sglang-omni --omnitap bin/omnitap [--only REGEX] [--quiet]

PYTHON is that of testdata/clients/install.sh; the server runs in its own environment of testdata/real/install.sh.
A recording relay stands between client and server (or omnitap) in both runs, so every byte is seen on the client's side.
One line a check, then "N passed, M failed"; exit 1 if one failed or none ran, 2 on wrong usage. All on 127.0.0.1.
Timing accuracy is timing.py's.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import expect
import scenarios
import servers
import talks
import turns
import visit
import wire

SLACK = 300_000  # ns: clocks of two processes, kernel stamps turned into monotonic time


class Checks:
    def __init__(self, quiet: bool):
        self.quiet, self.passed, self.failed = quiet, 0, 0

    def that(self, name: str, ok: bool, got, want) -> bool:
        self.passed += ok
        self.failed += not ok
        if not ok:
            print(f"FAIL {name}: got {short(got)} want {short(want)}", flush=True)
        elif not self.quiet:
            print(f"ok {name}", flush=True)
        return ok

    def same(self, name: str, got, want) -> bool:
        return self.that(name, got == want, got, want)

    def broke(self, name: str, e: Exception) -> None:
        self.that(name, False, f"{type(e).__name__}: {e}", "no exception")


def short(x) -> str:
    s = repr(x)
    return s if len(s) < 400 else s[:200] + " … " + s[-180:]


# -- one run of one scenario -------------------------------------------------------------------------
class Run:
    """One visit: the client's view, the connections' bytes, and the engine's account."""

    def __init__(self, s: scenarios.Scenario, server, port: int, letter: str):
        server.truth()
        rec = wire.Recorder(("127.0.0.1", port))
        ctx = visit.Context(rec.port, f"{s.name}-{letter}" if s.named else "")
        more = (server.port,) if hasattr(s.job, "needs_server") else ()
        self.view = s.job(ctx, *more)
        self.conns = rec.finish()
        time.sleep(0.3 if s.cut else 0.05)  # an abort reaches the engine a little later
        self.truth = server.truth()
        self.exchanges = [dict(x, conn=c) for c in self.conns for x in wire.exchanges(c)]
        self.exchanges.sort(key=lambda x: x["conn"].time_of("c", x["request"]["start"] + 1))


# -- direct against relayed ---------------------------------------------------------------------------
def kinds(chunks: list[bytes]) -> list[list[bytes]]:
    """Chunks with audio and the others apart: text and audio of two processes race each other."""
    audio = [c for c in chunks if b'"audio": {"id"' in c or b"speech.audio.delta" in c]
    return [[c for c in chunks if c not in audio], audio]


def prefix(a: list[bytes], b: list[bytes]) -> bool:
    """Whether one list is the start of the other; the last common chunk may be cut."""
    n = min(len(a), len(b))
    x, y = b"".join(a[:n]), b"".join(b[:n])
    return x.startswith(y) or y.startswith(x)


def bodies(s, d: dict, r: dict) -> bool:
    """Same bytes in the same HTTP chunks."""
    a = [wire.normal(c) for c in d["body"].chunks()]
    b = [wire.normal(c) for c in r["body"].chunks()]
    pairs = [(a, b)] if s.ordered else list(zip(kinds(a), kinds(b)))
    return all(prefix(x, y) if s.cut else x == y for x, y in pairs)


def framed(r: dict) -> bool:
    return bool(wire.header(r["headers"], "transfer-encoding") or wire.header(r["headers"], "content-length"))


def compare(c: Checks, name: str, s, direct: Run, relayed: Run) -> bool:
    """The client's side of both runs."""
    ok = c.same(f"{name}/connections", len(relayed.conns), len(direct.conns))
    ok &= c.same(f"{name}/exchanges", len(relayed.exchanges), len(s.truth))
    if s.view:
        c.same(f"{name}/client-view", relayed.view, direct.view)
    if not ok or s.loose:
        return ok
    for n, (x, y) in enumerate(zip(direct.exchanges, relayed.exchanges)):
        d, r, at = x["response"], y["response"], f"{name}/{n}"
        if d is None or r is None:
            c.same(f"{at}/no-response", r, d)
            continue
        c.same(f"{at}/status", (r["status_line"], r["interim"]), (d["status_line"], d["interim"]))
        c.same(f"{at}/headers", wire.normal_headers(r["headers"]), wire.normal_headers(d["headers"]))
        c.that(f"{at}/body-and-chunks", bodies(s, d, r), [wire.normal(z) for z in r["body"].chunks()],
               [wire.normal(z) for z in d["body"].chunks()])
        if not s.cut:
            c.same(f"{at}/complete", r["complete"], d["complete"])
            if not d["complete"] or not framed(d):  # else both sides may close, and it is chance who is first
                c.same(f"{at}/server-end", y["conn"].end_of("s"), x["conn"].end_of("s"))
    return True


# -- records against the engine ------------------------------------------------------------------------
def match(c: Checks, name: str, s, run: Run, records: list[dict]) -> list:
    """Pairs (exchange, record): by the X-Request-Id sent, else in the order of t_in."""
    if not c.same(f"{name}/records", len(records), len(run.exchanges)):
        return []
    if not s.named:
        return list(zip(run.exchanges, records))
    by_id = {r.get("request_id"): r for r in records}
    out = []
    for x in run.exchanges:
        rid = wire.header(x["request"]["headers"], "x-request-id")
        r = by_id.get(rid)
        if c.that(f"{name}/request-id {rid}", r is not None and r.get("request_id_source") == "client",
                  sorted(map(str, by_id)), (rid, "source client")):
            out.append((x, r))
    return out


def check_record(c: Checks, at: str, s, x: dict, rec: dict, n: int, truths: list) -> None:
    r = expect.Reading(x)
    left = x["conn"].end_of("c") is not None
    state = expect.state_of(r, left)
    c.that(f"{at}/terminal", (rec.get("terminal") or {}).get("state") in s.states.get(n, {state}), rec.get("terminal"),
           s.states.get(n, {state}))
    for key, want in (("method", r.request["method"]), ("path", r.path), ("flow", r.flow), ("status", r.status),
                      ("analysis", "full")):
        c.same(f"{at}/{key}", rec.get(key), want)
    other = {"vllm-omni": "sglang-omni", "sglang-omni": "vllm-omni"}[at.split("/")[0]]
    c.that(f"{at}/dialect", rec.get("dialect") != other, rec.get("dialect"), "not " + other)
    if not s.named:
        c.same(f"{at}/request_id_source", rec.get("request_id_source"), "own")
    if s.loose:
        return
    if r.flow == "chat" and r.id and r.id.startswith("chatcmpl-"):
        c.same(f"{at}/server_request_id", rec.get("server_request_id"), r.id)
    if r.kind == "text/event-stream" or (r.response and r.kind.startswith("audio/")):
        streams = r.kind == "text/event-stream" or bool(wire.header(r.response["headers"], "transfer-encoding"))
        if r.request["version"] == "HTTP/1.1":
            c.same(f"{at}/stream", rec.get("stream"), streams)
    want = s.truth[n]
    truth = None
    if isinstance(want, int):
        truth, truths[:want] = together(truths[:want]), []
        if want:
            bad = expect.agrees(r, truth, True)
            c.that(f"{at}/delivered", not bad, bad, "what the engine handed out")
    elif want:
        truth = expect.pick(r, truths)
        if not c.that(f"{at}/engine-took-it", truth is not None, None, "an entry of the engine") or want == "any":
            return
        bad = expect.agrees(r, truth, want == "whole")
        c.that(f"{at}/delivered", not bad, bad, "what the engine handed out")
    partial = s.cut or want == "prefix"
    check_text(c, at, r, rec, truth, partial)
    check_audio(c, at, r, rec, truth, partial)
    check_points(c, at, s, x, r, rec, truth)


def together(truths: list) -> servers.Truth:
    """The items of a batch as one."""
    out = servers.Truth("batch")
    for t in truths:
        out.chunks += t.chunks
        out.first_audio_ns = max(out.first_audio_ns or 0, t.first_audio_ns or 0)
    return out


def check_text(c: Checks, at: str, r: expect.Reading, rec: dict, truth, partial: bool) -> None:
    if not r.texts and not (truth and truth.texts and partial):
        c.that(f"{at}/no-text", not rec.get("text_units") and not rec.get("text_bytes"),
               (rec.get("text_units"), rec.get("text_bytes")), "none")
        return
    deltas = r.texts
    if partial and truth and isinstance(rec.get("text_units"), int):  # the relay may have read on after the client left
        deltas = truth.texts[:max(len(r.texts), rec["text_units"])]
    text = "".join(deltas).encode()
    c.same(f"{at}/text_sha256", rec.get("text_sha256") if text else None, wire.sha256(text) if text else None)
    c.same(f"{at}/text_bytes", rec.get("text_bytes") or 0, len(text))
    if rec.get("text_unit") == "delta" or not text:
        c.same(f"{at}/text_units", rec.get("text_units") or 0, len(deltas))
    else:
        c.same(f"{at}/text_unit", rec.get("text_unit"), "token")


def check_audio(c: Checks, at: str, r: expect.Reading, rec: dict, truth, partial: bool) -> None:
    a = rec.get("audio") or {}
    if r.container is None:
        c.that(f"{at}/no-audio", not a.get("samples"), a, "no samples")
        return
    c.same(f"{at}/audio.container", a.get("container"), r.container)
    if r.pcm is None:  # compressed: nothing is counted without a decoder
        c.same(f"{at}/audio.samples", a.get("samples"), None)
        return
    pcm = bytes(r.pcm.data)
    if partial and truth:  # whole chunks or, of a raw body, whole frames that came after the client left
        whole = b"".join(truth.chunks)
        n = (a.get("samples") or 0) * 2 * r.pcm.channels
        pcm = whole[:n] if n > len(pcm) // (2 * r.pcm.channels) * 2 * r.pcm.channels else pcm
    pcm = pcm[:len(pcm) // (2 * r.pcm.channels) * 2 * r.pcm.channels]
    c.same(f"{at}/audio.samples", a.get("samples"), len(pcm) // (2 * r.pcm.channels))
    c.same(f"{at}/audio.sha256", a.get("sha256"), wire.sha256(pcm))
    c.same(f"{at}/audio.encoding", a.get("encoding"), "pcm_s16le")
    c.same(f"{at}/audio.channels", a.get("channels"), r.pcm.channels)
    c.same(f"{at}/audio.sample_rate", (a.get("sample_rate"), a.get("assumed_sample_rate")), (r.rate, r.rate_assumed))
    c.same(f"{at}/rate_assumed", "rate_assumed" in (rec.get("flags") or []), r.rate_assumed is not None)
    if not partial and r.request["version"] == "HTTP/1.1" and r.flow != "speech_batch":
        c.same(f"{at}/audio.chunks", a.get("chunks"), r.pcm.chunks)


def check_points(c: Checks, at: str, s, x: dict, r: expect.Reading, rec: dict, truth) -> None:
    """Offsets to the byte, and times between what the engine and the client's side saw."""
    p, off, conn = rec.get("points") or {}, rec.get("offsets") or {}, x["conn"]
    want = {"t_text": r.first_text, "t_audio": r.pcm.playable if r.pcm else None}
    if r.kind in ("text/event-stream", "application/json"):
        want["t_audio_event"] = r.audio_event
    want["t_term"] = r.term
    if s.audible and r.pcm:
        want["t_audible"] = r.pcm.audible
    if s.cut or r.term is None:  # then it is where the cancel, the cut or the error is seen
        want.pop("t_term", None)
    for name, o in want.items():
        if o is None and s.cut:
            continue
        c.same(f"{at}/offsets.{name}", off.get(name), o)
        if o is None:
            c.that(f"{at}/unmeasured.{name}", p.get(name) is None, p.get(name), None)
    c.same(f"{at}/offsets.t_in", off.get("t_in"), r.request["start"] + 1)
    # t_up is stamped when the write returns, so a fast answer may come before it: it is not in the order.
    for keys in (("t_in", "t_body"), ("t_in", "t_up"), ("t_in", "t_hdr", "t_text", "t_term"),
                 ("t_in", "t_hdr", "t_audio_event", "t_audio", "t_term")):
        keys = [k for k in keys if p.get(k)]
        c.that(f"{at}/order {'<='.join(keys)}", all(p[a] <= p[b] for a, b in zip(keys, keys[1:])), [p[k] for k in keys], "ascending")
    sent = conn.time_of("c", r.request["start"] + 1)
    c.that(f"{at}/t_in-after-send", (p.get("t_in") or 0) >= sent - SLACK, p.get("t_in"), f">= {sent}")
    for name, o, engine in (("t_text", r.first_text, truth and truth.first_text_ns),
                            ("t_audio", r.pcm and r.pcm.playable, truth and truth.first_audio_ns)):
        if not p.get(name) or o is None:
            continue
        seen = conn.time_of("s", o)
        c.that(f"{at}/{name}-between", (engine or 0) - SLACK <= p[name] <= seen + SLACK, p[name], f"{engine} … {seen}")
    for name, ms in (("t_text", "ttft_ms"), ("t_audio", "ttfa_ms"), ("t_term", "jct_ms")):
        if p.get(name) and p.get("t_in") and rec.get(ms) is not None:
            c.that(f"{at}/{ms}", abs(rec[ms] - (p[name] - p["t_in"]) / 1e6) < 0.002, rec[ms], (p[name] - p["t_in"]) / 1e6)


def check_records(c: Checks, name: str, s, run: Run, records: list[dict]) -> None:
    truths = list(run.truth)
    for n, (x, rec) in enumerate(match(c, name, s, run, records)):
        try:
            check_record(c, f"{name}/{n}", s, x, rec, n, truths)
        except (AssertionError, KeyError, TypeError, ValueError) as e:
            c.broke(f"{name}/{n}/reading", e)
    if not records or s.cut or s.loose:
        return
    early = any("early_answer" in (r.get("flags") or []) for r in records)  # body bytes after the answer's end belong to no record
    for key, side in (("bytes_up", "c"), ("bytes_down", "s")):
        got, want = sum(r.get(key) or 0 for r in records), sum(len(k.stream(side)) for k in run.conns)
        ok = want * 3 // 4 <= got <= want if early and side == "c" else got == want
        c.that(f"{name}/{key}", ok, got, want)


# -- main -----------------------------------------------------------------------------------------------
def drive(c: Checks, a, todo: list, server, work: pathlib.Path) -> None:
    """All scenarios that share one server."""
    try:
        tap = servers.Omnitap(a.omnitap, server.port, work, a.omnitap_arg)
        try:
            for s in todo:
                name = f"{a.server}/{s.name}"
                try:
                    one(c, a, s, server, tap, name)
                except Exception as e:  # one broken scenario must not hide the others
                    c.broke(name, e)
        finally:
            c.same(f"{a.server}/omnitap-exit", tap.stop(), 0)
    finally:
        server.stop()


def one(c: Checks, a, s, server, tap, name: str) -> None:
    if isinstance(s, talks.Live):
        one_live(c, a, s, server, tap, name)
        return
    direct = Run(s, server, server.port, "d")
    relayed = Run(s, server, tap.port, "r")
    compare(c, name, s, direct, relayed)
    if a.wire_only:
        return
    records = tap.records(len(relayed.exchanges))
    keep(a, s, records)
    check_records(c, name, s, relayed, records)


def one_live(c: Checks, a, s: talks.Live, server, tap, name: str) -> None:
    direct = turns.Run(s, server, server.port, "d")
    relayed = turns.Run(s, server, tap.port, "r")
    if not turns.compare(c, name, s, direct, relayed) or a.wire_only:
        return
    lines = tap.sessions(len(s.talks))
    records = tap.records(sum(len(t.turns) for t in s.talks))
    keep(a, s, records + lines)
    turns.check_records(c, name, s, relayed, records, lines)


def keep(a, s, records: list[dict]) -> None:
    if a.keep_records:
        with open(a.keep_records, "a") as f:
            f.writelines(json.dumps({"scenario": s.name, **r}) + "\n" for r in records)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--server", choices=sorted(scenarios.SCENARIOS), required=True)
    ap.add_argument("--omnitap", required=True, help="the binary")
    ap.add_argument("--omnitap-arg", action="append", default=[], help="one more argument for omnitap serve; repeatable")
    ap.add_argument("--only", help="regular expression on the scenario's name")
    ap.add_argument("--quiet", action="store_true", help="print failures only")
    ap.add_argument("--wire-only", action="store_true", help="compare what the clients see and no records")
    ap.add_argument("--keep-records", metavar="FILE", help="append the records here, with the scenario's name")
    a = ap.parse_args()
    if not shutil.which(a.omnitap):
        ap.error(f"no program at {a.omnitap}")
    python = servers.environment(a.server)
    groups: dict[tuple, list] = {}
    for s in [*scenarios.SCENARIOS[a.server](), *talks.LIVE[a.server]()]:
        if not a.only or re.search(a.only, s.name):
            groups.setdefault(s.options, []).append(s)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the finally clauses run
    c = Checks(a.quiet)
    work = pathlib.Path(tempfile.mkdtemp(prefix="omnitap-drive-"))
    try:
        coming = [servers.Coming(lambda o=options: servers.SERVERS[a.server](python, work, o)) for options in groups]
        for n, todo in enumerate(groups.values()):
            coming[n].start()
            server = coming[n].get()
            for later in coming[n + 1:n + 2]:  # it comes up while this one is at work
                later.start()
            drive(c, a, todo, server, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{c.passed} passed, {c.failed} failed", flush=True)
    return 1 if c.failed or not c.passed else 0


if __name__ == "__main__":
    sys.exit(main())
