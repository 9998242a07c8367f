"""The stock vLLM-Omni server on a GPU behind omnitap with its probes on, against the server's own step log and times.

    PYTHONPATH=SITE python3 testdata/gpu/stock.py --omnitap bin/omnitap-nocgo --url URL --steps DIR --log FILE [--out DIR]

URL is a server with three stages that runs already; DIR holds its step log, a line a call of a model runner with the
CUDA graph replays in it (stage<N>.jsonl: t0, t1, fn, replays, reqs), FILE what it prints, with `--log-stats`.
Checked of requests one at a time, two at once, of text alone and one that its client leaves: the way to first audio sums
to TTFA and goes through all stages, chunks are unbroken, a stage's times are the server's own, graph launches are
the server's replays. Then what the default set costs: blocks of equal requests with the probes off and on, off and
off, in turns. Needs root, httpx. Prints a line a failed check and "N passed, M failed"; exit 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "real"))

import probes
import stages
import transfers

MODEL = "tiny-omni"


def step_log(folder: pathlib.Path) -> dict[int, list[dict]]:
    out = {}
    for f in folder.glob("stage*.jsonl"):
        lines = [json.loads(x) for x in f.read_text().splitlines(keepends=True) if x.endswith("}\n")]
        out[int(f.stem.removeprefix("stage"))] = lines
    return out


def launches_as_logged(r: transfers.Report, x: dict, log: dict[int, list[dict]]) -> int:
    """Graph launches within a stage's time are the replays of the runner's calls in it; a call at a border may be in part."""
    compared = 0
    for n, t in enumerate(x["stages"]):
        if t["start_ns"] is None or t["finish_ns"] is None:
            continue
        inside = sum(e["replays"] for e in log[n] if e["t0"] >= t["start_ns"] and e["t1"] <= t["finish_ns"])
        across = sum(e["replays"] for e in log[n] if e["t1"] >= t["start_ns"] and e["t0"] <= t["finish_ns"])
        g = t["gpu"]
        if g is None:
            r.that(inside == 0, f"{x['request_id']} {t['stage']}: no GPU, {inside} replays in its time")
            continue
        compared += g["graph_launches"]
        r.that(inside <= g["graph_launches"] <= across, f"{x['request_id']} {t['stage']}: {g['graph_launches']} graph launches, its runner says {inside} to {across}")
    return compared


def leave(base: str, request_id: str) -> None:
    """A client that goes after the first sound."""
    import httpx

    body = {"model": MODEL, "stream": True, "modalities": ["text", "audio"], "messages": [{"role": "user", "content": "Never mind."}], "ignore_eos": True, "max_tokens": 60}
    with httpx.stream("POST", base + "/v1/chat/completions", json=body, headers={"X-Request-Id": request_id}, timeout=60) as got:
        for line in got.iter_lines():
            if '"modality":"audio"' in line.replace(" ", ""):
                return


def right(omnitap: str, out: pathlib.Path, a: argparse.Namespace) -> transfers.Report:
    r, before = transfers.Report(), a.log.stat().st_size
    alone, pairs = [f"alone-{i}" for i in range(a.requests)], [f"pair-{i}" for i in range(a.requests)]
    with probes.observed(omnitap, out, a.url, "stages: {budget: 0.9}\n") as o:
        chat = lambda rid: stages.chat(o.url, MODEL, rid, text=f"Tell me about ship {rid}.")
        answers = [*stages.ask_many(chat, alone, 1), *stages.ask_many(chat, pairs, 2), stages.chat(o.url, MODEL, "text-alone", audio=False)]
        leave(o.url, "left")
        time.sleep(1)
        code = o.stop()
    for x in answers:
        r.that(x.status == 200 and not x.error, f"{x.request_id} failed: {x.status} {x.error}")
    records = {x["request_id"]: x for x in o.records()}
    # ids of an earlier run are in the server's log too
    log, said, counted = step_log(a.steps), a.log.read_bytes()[before:].decode(errors="replace"), 0
    for rid in alone + pairs:
        x = records.get(rid)
        r.that(x is not None and x["stages"] is not None, f"{rid}: no record with stages: {x and x['unmeasured'].get('stages')}")
        if x is None or x["stages"] is None:
            continue
        r.that([t["stage"] for t in x["stages"]] == ["thinker", "talker", "code2wav"], f"{rid}: stages {[t['stage'] for t in x['stages']]}")
        r.that(all(t["match"] == "id" and t["confidence"] == 1 for t in x["stages"]), f"{rid} is not matched by its id")
        if x["ttfa_ms"] is not None:
            probes.path_of(r, x, "code2wav")
        probes.unbroken(r, x)
        probes.times_as_told(r, x, said)
        if rid in alone:
            counted += launches_as_logged(r, x, log)
    r.that(counted > 100, f"only {counted} graph launches were compared")
    x = records["text-alone"]
    r.that([t["stage"] for t in x["stages"] or []] == ["thinker"], f"text alone: stages {x['stages']}")
    x = records["left"]
    r.that(x["terminal"]["state"] == "client-cancelled" and x["cancel_quiesce_ms"] is not None, f"left: {x['terminal']}, quiet after {x['cancel_quiesce_ms']}: {x['unmeasured'].get('cancel_quiesce_ms')}")
    probes.health(r, o, code)
    ways = [x for x in records.values() if x["critical_path"]]
    sums: dict[str, list[float]] = {}
    for x in ways:
        for g in x["critical_path"]:
            sums.setdefault(g["gap"], []).append(g["ms"])
    for gap, v in sums.items():
        r.table.append(f"| {gap} | {statistics.median(v):.2f} ms at the median | of {len(v)} of {len(ways)} |")
    r.table.append(f"| graph launches compared | {counted} | quiet after a leave: {records['left']['cancel_quiesce_ms']} ms |")
    return r


def timed(base: str, rid: str) -> tuple[float, float, float]:
    """TTFT, TTFA and JCT in ms of a request of a fixed length, as its client sees them."""
    import httpx

    body = {"model": MODEL, "stream": True, "modalities": ["text", "audio"], "messages": [{"role": "user", "content": "Tell me about ships."}], "ignore_eos": True, "max_tokens": 30}
    t0, first = time.monotonic(), {}
    with httpx.stream("POST", base + "/v1/chat/completions", json=body, headers={"X-Request-Id": rid}, timeout=60) as got:
        for line in got.iter_lines():
            if line.startswith("data: {"):
                e = json.loads(line[6:])
                if any(c["delta"].get("content") for c in e.get("choices") or []):
                    first.setdefault(e.get("modality", "text"), time.monotonic())
    return tuple(1000 * (t - t0) for t in (first.get("text", float("nan")), first.get("audio", float("nan")), time.monotonic()))


def cost(omnitap: str, out: pathlib.Path, a: argparse.Namespace) -> list[str]:
    """Blocks with the probes off and on, in turns (A B B A); all of them through the relay."""
    plain = Plain(omnitap, out / "off", a.url)
    blocks: dict[str, list[tuple]] = {"off": [], "on": []}
    try:
        for i in range(8):
            timed(plain.url, f"warm-{i}")
        for n, kind in enumerate(["off", "on", "on", "off"] * a.rounds):
            if kind == "off":
                got = [timed(plain.url, f"cost-{n}-{i}") for i in range(a.block)]
            else:
                with probes.observed(omnitap, out / f"on-{n}", a.url, "{}\n") as o:
                    got = [timed(o.url, f"cost-{n}-{i}") for i in range(a.block)]
                    o.stop()
                trimmed = [f["name"] for f in o.topology()["families"] if f["state"] not in ("attached", "unused")]
                if trimmed:
                    print(f"block {n}: without {trimmed}")
            blocks[kind].append(tuple(statistics.median(v) for v in zip(*got)))
    finally:
        plain.stop()
    lines = []
    for k, name in enumerate(("TTFT", "TTFA", "JCT")):
        off, on = ([b[k] for b in blocks[kind]] for kind in ("off", "on"))
        halves = statistics.median(off[0::2]) / statistics.median(off[1::2]) - 1
        lines.append(f"| {name} | off {statistics.median(off):.1f} ms, on {statistics.median(on):.1f} ms: {100 * (statistics.median(on) / statistics.median(off) - 1):+.1f} % | off against off {100 * halves:+.1f} %; blocks off {[round(v, 1) for v in off]}, on {[round(v, 1) for v in on]} |")
    return lines


class Plain:
    """The relay without probes."""

    def __init__(self, omnitap: str, out: pathlib.Path, upstream: str):
        import re
        import subprocess

        out.mkdir(parents=True)
        self.p = subprocess.Popen([omnitap, "serve", "--upstream", upstream, "--listen", "127.0.0.1:0", "--probes", "off", "--out", str(out / "run"), "--log", "off"],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = "http://" + re.match(r"listening on (\S+),", self.p.stderr.readline())[1]
        threading.Thread(target=self.p.stderr.read, daemon=True).start()

    def stop(self) -> None:
        self.p.terminate()
        self.p.wait(30)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--omnitap", required=True)
    p.add_argument("--url", required=True)
    p.add_argument("--steps", type=pathlib.Path, required=True)
    p.add_argument("--log", type=pathlib.Path, required=True)
    p.add_argument("--requests", type=int, default=12, help="alone, and as many two at once")
    p.add_argument("--block", type=int, default=15, help="requests of a block")
    p.add_argument("--rounds", type=int, default=3, help="of off, on, on, off")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="stock-"))
    for i in range(4):
        stages.chat(a.url, MODEL, f"warm-up-{i}")
    r = right(a.omnitap, out / "right", a)
    print(r)
    print("\n".join(cost(a.omnitap, out / "cost", a)))
    print(f"{r.passed} passed, {len(r.failed)} failed" + (f" (kept: {out})" if r.failed else ""))
    return 1 if r.failed else 0


if __name__ == "__main__":
    sys.exit(main())
