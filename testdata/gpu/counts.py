"""Known numbers of CUDA calls of a PyTorch program, against what omnitap's cuda probes saw of them.

    python3 testdata/gpu/counts.py --omnitap bin/omnitap-nocgo [--out DIR]

Needs root, an NVIDIA GPU and PyTorch. The program stands for a stage (a rule file says so); it makes its calls when
omnitap is attached. Checked: every graph launch, copy of 64 KiB and more, stream and event synchronise is told once,
smaller copies and kernel launches are counted exactly, nothing is lost, no call counts twice although the runtime's
library is mapped too. Then the cost of a small launch with and without the probes, in turns. Prints a line a check and
"N passed, M failed"; exit 1 if one failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

GRAPHS, BIG, SMALL, SYNCS, EVENTS, LAUNCHES = 77, 100, 250, 101, 33, 60_000

RULES = """rules:
  - server: gpu-test
    role: stage
    env: {name: OMNITAP_GPU_TEST, match: "^(?P<stage>[a-z]+)$"}
"""

CONFIG = """stages:
  budget: 0.9
  rules: RULES
  cuda_launches: LAUNCHES
  socket: {use: "off"}
  pipe: {use: "off"}
"""


def program() -> None:
    """The stage: says READY, then does what each line of its input says."""
    import time

    import torch

    x = torch.zeros(1024, device="cuda")
    big, small = torch.zeros(1 << 18, pin_memory=True), torch.zeros(1024, pin_memory=True)  # 1 MiB, 4 KiB
    on_gpu = torch.zeros(1 << 18, device="cuda")
    g = torch.cuda.CUDAGraph()
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        for _ in range(3):
            x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        x.add_(1)
        x.mul_(1)
    event = torch.cuda.Event()
    torch.cuda.synchronize()
    print("READY", os.getpid(), flush=True)
    for line in sys.stdin:
        if line.strip() == "counts":
            for _ in range(GRAPHS):
                g.replay()
            for _ in range(BIG):
                on_gpu.copy_(big, non_blocking=True)
            for _ in range(SMALL):
                on_gpu[:1024].copy_(small, non_blocking=True)
            event.record()
            for _ in range(EVENTS):
                event.synchronize()
            for _ in range(LAUNCHES):
                x.add_(1)
            for _ in range(SYNCS):
                torch.cuda.current_stream().synchronize()
            print("DONE", flush=True)
        elif line.strip() == "cost":
            took = []
            for _ in range(20):
                torch.cuda.synchronize()
                t = time.perf_counter_ns()
                for _ in range(1000):
                    x.add_(1)
                took.append((time.perf_counter_ns() - t) / 1000)
                torch.cuda.synchronize()
            print("COST", statistics.median(took), flush=True)


class Program:
    def __init__(self):
        self.p = subprocess.Popen([sys.executable, __file__, "--program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "OMNITAP_GPU_TEST": "thinker"})
        self.pid = int(self.p.stdout.readline().split()[1])

    def ask(self, what: str) -> str:
        self.p.stdin.write(what + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def stop(self) -> None:
        self.p.stdin.close()
        self.p.wait(20)


class Observer:
    """omnitap serve with the probes; ready when its log says that cuda is attached."""

    def __init__(self, omnitap: str, out: pathlib.Path, launches: bool):
        self.out = out
        out.mkdir(parents=True)
        (out / "rules.yaml").write_text(RULES)
        (out / "config.yaml").write_text(CONFIG.replace("RULES", str(out / "rules.yaml")).replace("LAUNCHES", str(launches).lower()))
        self.p = subprocess.Popen([omnitap, "serve", "--config", str(out / "config.yaml"), "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0",
                                   "--probes", "require", "--capture", str(out / "capture"), "--out", str(out / "run")], stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.p.stderr:
            lines.append(line)
            if line.startswith("stage probes:"):
                break
        self.said = lines[-1].strip() if lines else "nothing"
        threading.Thread(target=lambda: [lines.append(x) for x in self.p.stderr], daemon=True).start()

    def stop(self) -> tuple[list[dict], dict]:
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(30)
        events = [json.loads(x) for x in (self.out / "capture/stages/raw.jsonl").read_text().splitlines()]
        return events, json.loads((self.out / "run/topology.json").read_text())


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--program", action="store_true")
    p.add_argument("--omnitap", default="bin/omnitap-nocgo")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    if a.program:
        program()
        return 0
    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="gpu-"))
    passed = failed = 0

    def check(what: str, got, want) -> None:
        nonlocal passed, failed
        ok = got == want
        passed, failed = passed + ok, failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'} {what}: {got}{'' if ok else f', want {want}'}", flush=True)

    prog = Program()
    o = Observer(a.omnitap, out / "counts", True)
    print(o.said)
    check("cuda is attached", "cuda" in o.said.split(";")[1] if ";" in o.said else "", True)
    check("the program made its calls", prog.ask("counts"), "DONE")
    events, topology = o.stop()
    calls, counts, size = collections.Counter(), collections.Counter(), collections.Counter()
    for e in events:
        if e["pid"] != prog.pid:
            continue
        if e["probe"] == "cuda_call":
            calls[e["args"]["fn"]] += 1
            size[e["args"]["fn"]] += e["args"].get("size", 0)
        elif e["probe"] == "cuda_count":
            counts[e["args"]["fn"]] += e["args"]["count"]
    print(dict(calls), dict(counts))
    check("graph launches", calls["cuGraphLaunch"], GRAPHS)
    check("large copies", calls["cuMemcpyHtoDAsync_v2"], BIG)
    check("their bytes", size["cuMemcpyHtoDAsync_v2"], BIG << 20)
    check("small copies, counted", counts["cuMemcpyHtoDAsync_v2"], SMALL)
    check("event synchronises", calls["cuEventSynchronize"], EVENTS)
    check("stream synchronises", calls["cuStreamSynchronize"], SYNCS)
    check("kernel launches, counted", counts["cuLaunchKernel"] + counts["cuLaunchKernelEx"], LAUNCHES)
    check("events lost", sum(e["args"].get("count", 0) for e in events if e["probe"] == "loss"), 0)
    for f in topology["stages"]["families"]:
        if f["name"] in ("cuda", "sched", "shm", "zmq"):
            print(f["name"], f["state"], "hits", f["hits"], "cost_ns", f["cost_ns"], f.get("reason", ""), flush=True)

    cost = {"bare": [], "default": [], "launches": []}
    for n in range(4):
        cost["bare"].append(float(prog.ask("cost").split()[1]))
        for name in ("default", "launches"):
            o = Observer(a.omnitap, out / f"cost-{name}-{n}", name == "launches")
            cost[name].append(float(prog.ask("cost").split()[1]))
            o.stop()
    cost["bare"].append(float(prog.ask("cost").split()[1]))
    for name, v in cost.items():
        print(f"ns a small launch, {name}: median {statistics.median(v):.0f}, {min(v):.0f} to {max(v):.0f} of {len(v)} rounds")
    prog.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
