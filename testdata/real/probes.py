"""What omnitap's stage probes see of the real servers' stage processes, against their ground truth. As root.

    PYTHON testdata/real/probes.py --omnitap bin/omnitap [--only REGEX] [--requests N] [--out DIR]

Runs, one at a time: the servers' own connectors between real processes (connectors/: vLLM-Omni's shared memory and ZMQ
with many requests at once, with faults, with a stage that ends; SGLang-Omni's relay and ZMQ, also with an end; Mooncake
over TCP), observed by `omnitap serve --probes require --capture`, whose capture `omnitap replay --stages` joins; then the
whole vLLM-Omni server with random weights and SGLang-Omni's server over toy stages behind the relay with its probes on:
every record has its stages, and the way to first audio adds up.
Prints a table and a line a failed check for each, then "N passed, M failed"; exit 1 if one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import servers
import stages
import transfers

sys.path.insert(0, str(stages.CONNECTORS))
import make_scenario

SCENARIOS = stages.CONNECTORS / "scenarios"
# The budget is for production: here every transfer is to be seen, at a load that no GPU server has.
CONFIG = """stages:
  budget: 0.9
  names: {0: thinker, 1: talker, 2: code2wav}
"""


class Observer:
    """`omnitap serve` with its probes attached; `url` is its relay."""

    def __init__(self, omnitap: str, out: pathlib.Path, upstream: str, config: str):
        self.omnitap, self.out = omnitap, out
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.yaml").write_text(config)
        self.p = subprocess.Popen(
            [omnitap, "serve", "--config", str(out / "config.yaml"), "--upstream", upstream, "--listen", "127.0.0.1:0", "--probes", "require",
             "--capture", str(out / "capture"), "--out", str(out / "run"), "--log", "off"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=servers.die_with_parent)
        self.lines: list[str] = []
        self.url = ""
        for line in self.p.stderr:
            self.lines.append(line)
            if m := re.match(r"listening on (\S+),", line):
                self.url = "http://" + m[1]
            if line.startswith("stage probes:"):
                break
        else:
            raise SystemExit(f"omnitap ended with {self.p.wait()}:\n{''.join(self.lines)}")
        threading.Thread(target=lambda: self.lines.extend(self.p.stderr), daemon=True).start()

    def stop(self) -> int:
        self.p.send_signal(signal.SIGTERM)
        try:
            return self.p.wait(60)
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.wait()

    def transfers(self) -> tuple[int, list[dict]]:
        r = subprocess.run([self.omnitap, "replay", "--stages", str(self.out / "capture" / "stages")], capture_output=True, text=True, timeout=300)
        if r.stderr:
            print(r.stderr.rstrip())
        return r.returncode, [json.loads(x) for x in r.stdout.splitlines()]

    def records(self) -> list[dict]:
        return [json.loads(x) for x in (self.out / "run" / "requests.jsonl").read_text().splitlines()]

    def topology(self) -> dict:
        return json.loads((self.out / "run" / "topology.json").read_text())["stages"]


@contextlib.contextmanager
def observed(omnitap: str, out: pathlib.Path, upstream: str, config: str = CONFIG):
    o = Observer(omnitap, out, upstream, config)
    try:
        yield o
    except BaseException:
        o.p.kill()
        raise


def health(r: transfers.Report, o: Observer, code: int) -> None:
    """What the probes say of themselves."""
    t = o.topology()
    r.that(code == 0, f"omnitap ended with {code}: {''.join(o.lines)[-2000:]}")
    r.that(t["lost"] == 0, f"{t['lost']} kernel events were lost")
    for f in t["families"]:
        r.that(f["state"] in ("attached", "unused"), f"{f['name']} is {f['state']}: {f.get('reason')}")
        if f["hits"]:
            cost = "not measured" if f["cost_ns"] is None else f"{f['cost_ns']:.0f} ns a hit"
            r.table.append(f"| probe {f['name']} | {f['hits']} hits, {f['sent']} events | {cost} |")


def harness(name: str, scenario, omnitap: str, out: pathlib.Path) -> transfers.Report:
    """One run of connectors/ under observation."""
    h = stages.Harness(name, scenario, out / "truth")
    try:
        h.wait_ready()
        with observed(omnitap, out, "http://127.0.0.1:1") as o:
            h.release()
            h.wait_done()
            time.sleep(0.5)  # what the stages do behind the last answer
            code = o.stop()
        h.finish()
    finally:
        h.stop()
    rc, lines = o.transfers()
    r = transfers.compare(lines, h.expected())
    r.that(rc == 0, f"replay --stages ended with {rc}")
    health(r, o, code)
    asked = h.requests()
    r.table.append(f"| requests | {asked['submit']} asked, {asked['done']} done | |")
    return r


def path_of(r: transfers.Report, x: dict, last: str) -> None:
    """The way to first audio of one record: it sums to its TTFA, and goes through the stages."""
    path = x["critical_path"]
    r.that(path is not None, f"{x['request_id']} has no way to first audio: {x['unmeasured'].get('critical_path')}")
    if path is None:
        return
    total = sum(g["ms"] for g in path)
    r.that(abs(total - x["ttfa_ms"]) < 1e-3, f"{x['request_id']}: the gaps sum to {total}, TTFA is {x['ttfa_ms']}")
    r.that(all(g["ms"] >= 0 for g in path), f"{x['request_id']}: a gap is negative: {path}")
    r.that(any(g["gap"].startswith(last) for g in path), f"{x['request_id']}: {last} is not on the way: {path}")


def whole_server(r: transfers.Report, s, o: Observer, ids: list[str]) -> list[dict]:
    records = {x["request_id"]: x for x in o.records()}
    for rid in ids:
        r.that(rid in records, f"no record of {rid}")
    return [records[i] for i in ids if i in records]


def vllm_cpu(omnitap: str, out: pathlib.Path, requests: int) -> transfers.Report:
    """The whole vLLM-Omni server; stage order, outputs and samples as its own models' log says."""
    r = transfers.Report()
    (out / "server").mkdir(parents=True)
    s = stages.CpuServer("omni", out / "server")
    try:
        with observed(omnitap, out, f"http://127.0.0.1:{s.port}", "stages: {budget: 0.9}\n") as o:
            ids = stages.some_ids(requests)
            answers = stages.ask_many(lambda i: stages.chat(o.url, "tiny-omni", i), ids, 2)
            text = stages.chat(o.url, "tiny-omni", "text-alone", audio=False)
            code = o.stop()
        truth = s.truth()
    finally:
        s.stop()
    log = "".join(f.read_text(errors="replace") for f in (out / "server").glob("server-*.log"))
    for a in [*answers, text]:
        r.that(a.status == 200 and not a.error, f"{a.request_id} failed: {a.status} {a.error}")
    for x in whole_server(r, s, o, ids):
        if x["ttfa_ms"] is not None:  # a talker may end at once, as with real checkpoints
            path_of(r, x, "code2wav")
        steps_as_logged(r, x, truth)
        times_as_told(r, x, log)
        r.that([t["stage"] for t in x["stages"]] == ["thinker", "talker", "code2wav"], f"{x['request_id']}: stages {[t['stage'] for t in x['stages']]}")
        r.that(all(t["match"] == "id" and t["confidence"] == 1 for t in x["stages"]), f"{x['request_id']} is not matched by its id")
        unbroken(r, x)
    for x in whole_server(r, s, o, ["text-alone"]):
        r.that([t["stage"] for t in x["stages"]] == ["thinker"], f"text alone: stages {[t['stage'] for t in x['stages']]}")
        r.that(len(x["transfers"] or []) <= 1 and all(t.get("unread") for t in x["transfers"] or []), f"text alone: transfers {x['transfers']}")
    health(r, o, code)
    r.table.append(f"| whole vLLM-Omni | {len(ids)} chats, {sum(x['ttfa_ms'] is not None for x in o.records())} with audio | |")
    return r


def steps_as_logged(r: transfers.Report, x: dict, truth: list[dict]) -> None:
    """A stage's outputs are its model's steps as its own log has them, all within the stage's time."""
    for t in x["stages"]:
        mine = [e for e in truth if e["stage"] == t["stage"] and re.sub(r"-[0-9a-f]{8}$", "", e["request"]) == x["server_request_id"]]
        if not mine or t["start_ns"] is None or t["finish_ns"] is None:
            continue
        first, last = mine[0]["mono_ns"], mine[-1]["mono_ns"]
        r.that(t["start_ns"] <= first + 5_000_000, f"{x['request_id']} {t['stage']} starts {(t['start_ns'] - first) / 1e6:.1f} ms after its first step")
        r.that(t["finish_ns"] >= last - 5_000_000, f"{x['request_id']} {t['stage']} finishes {(last - t['finish_ns']) / 1e6:.1f} ms before its last step")


def times_as_told(r: transfers.Report, x: dict, log: str) -> None:
    """The server's own line of a request says how long each stage took from its being asked to its last answer."""
    m = re.search(rf"\[OmniTiming\] req={re.escape(x['server_request_id'])}-[0-9a-f]{{8}} .*?stages=\[([^\]]*)\]", log)
    r.that(m is not None, f"{x['request_id']}: no line of the server's own times")
    if m is None:
        return
    told = dict(p.rstrip("s").split(":") for p in m[1].split(","))
    asked = x["stages"][0]["ready_ns"]
    for n, t in enumerate(x["stages"]):
        took = (t["finish_ns"] - asked) / 1e9
        want = float(told[str(n)])  # in hundredths; to the receipt of the answer, which waits for the event loop
        r.that(-0.1 <= want - took <= 0.3, f"{x['request_id']} {t['stage']}: {took:.3f} s, the server says {want} s")


def unbroken(r: transfers.Report, x: dict) -> None:
    """Chunk numbers of each edge count from 0 without a gap; what was received was received after it was sent."""
    for edge in {(t["from"], t["to"]) for t in x["transfers"]}:
        chunks = sorted(t["chunk"] for t in x["transfers"] if (t["from"], t["to"]) == edge)
        r.that(chunks == list(range(len(chunks))), f"{x['request_id']} {edge}: chunks {chunks}")
    for t in x["transfers"]:
        r.that(t["bytes"] is not None and t["bytes"] > 0 and t["match"] == "id", f"{x['request_id']}: {t}")
        if not t.get("unread"):
            r.that(t["end_ns"] is not None and t["end_ns"] >= t["start_ns"], f"{x['request_id']}: {t}")


def sglang_toy(omnitap: str, out: pathlib.Path, requests: int) -> transfers.Report:
    """SGLang-Omni's server: transfers as its own trace has them, records with their stages."""
    (out / "server").mkdir(parents=True)
    s = stages.ToyServer(out / "server")
    try:
        s.start_profile(out / "profile")
        with observed(omnitap, out, f"http://127.0.0.1:{s.port}", "stages: {budget: 0.9}\n") as o:
            ids = stages.some_ids(requests)
            answers = stages.ask_many(lambda i: stages.chat(o.url, "toy-omni", i), ids, 2)
            code = o.stop()
        s.stop_profile()
    finally:
        s.stop()
    _, lines = o.transfers()
    (log,) = (out / "server").glob("stages-*")
    r = transfers.compare(lines, transfers.expected(transfers.read_truth(str(log))))
    found = {(t["stage"], t["pid"]) for t in o.topology()["processes"] if t["role"] != "api"}
    named = {(m[1], int(m[2])) for f in (out / "profile").glob("events_*.jsonl") if (m := re.match(r"events_(.+)_(\d+)\.jsonl", f.name))}
    r.that(found == {n for n in named if n[0] not in ("coordinator", "api", "main")}, f"stages by pid: found {sorted(found)}, the profiler names {sorted(named)}")
    for a in answers:
        r.that(a.status == 200 and not a.error, f"{a.request_id} failed: {a.status} {a.error}")
    records = o.records()
    r.that(len(records) == len(ids), f"{len(records)} records of {len(ids)} requests")
    for x in records:
        r.that(x["stages"] is not None, f"{x['request_id']} has no stages: {x['unmeasured'].get('stages')}")
        if x["stages"] is not None and x["ttfa_ms"] is not None:
            path_of(r, x, "code2wav")
    health(r, o, code)
    return r


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--omnitap", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--requests", type=int, default=1000, help="of the connectors' runs")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    keep = a.out is not None
    root = a.out or pathlib.Path(tempfile.mkdtemp(prefix="probes-"))
    many = lambda server, n, faults=False: make_scenario.many(server, n, 32, faults=faults)
    runs = {
        "vllm-omni": lambda out: harness("vllm-omni", many("vllm-omni", a.requests), a.omnitap, out),
        "vllm-omni-faults": lambda out: harness("vllm-omni", SCENARIOS / "vo-faults.json", a.omnitap, out),
        "vllm-omni-exit": lambda out: harness("vllm-omni", SCENARIOS / "vo-exit.json", a.omnitap, out),
        "sglang-omni": lambda out: harness("sglang-omni", many("sglang-omni", a.requests), a.omnitap, out),
        "sglang-omni-exit": lambda out: harness("sglang-omni", SCENARIOS / "so-exit.json", a.omnitap, out),
        "mooncake": lambda out: harness("mooncake", SCENARIOS / "mc-tcp.json", a.omnitap, out),
        "whole-vllm-omni": lambda out: vllm_cpu(a.omnitap, out, 6),
        "toy-sglang-omni": lambda out: sglang_toy(a.omnitap, out, 12),
    }
    passed = failed = 0
    for name, run in runs.items():
        if not re.search(a.only, name):
            continue
        t0 = time.monotonic()
        print(f"== {name}", flush=True)
        r = run(root / name)
        passed, failed = passed + r.passed, failed + len(r.failed)
        text = str(r).splitlines()
        print("\n".join([*text[: len(r.table) + 2], *("FAIL " + f for f in r.failed[:40])]))
        print(f"{name}: {r.passed} passed, {len(r.failed)} failed, {time.monotonic() - t0:.0f} s", flush=True)
    if not keep and not failed:
        shutil.rmtree(root)
    print(f"{passed} passed, {failed} failed" + ("" if not failed else f" (kept: {root})"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
