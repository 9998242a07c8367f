"""Ground truth log, scenario file, faults and the gate before the first request, shared by all harnesses."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
import traceback


class Truth:
    """Appends one JSON line an event; each line is one write(), so a killed stage keeps its log."""

    def __init__(self, directory: str, stage: str):
        self.stage = stage
        self.pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.fd = os.open(truth_file(directory, stage), flags, 0o644)

    def log(self, event, request_id=None, chunk=None, nbytes=None, key=None, mono_ns=None, **more):
        line = {
            "mono_ns": mono_ns or time.monotonic_ns(),
            "pid": self.pid,
            "tid": threading.get_native_id(),
            "stage": self.stage,
            "request_id": request_id,
            "chunk": chunk,
            "event": event,
            "bytes": nbytes,
            "key": key,
        }
        line.update(more)
        os.write(self.fd, (json.dumps(line) + "\n").encode())


def truth_file(directory: str, stage: str) -> str:
    return os.path.join(directory, f"truth-{stage}.jsonl")


class Scenario:
    """See README.md for the file."""

    def __init__(self, path: str):
        with open(path) as f:
            self.d = json.load(f)
        self.requests = self.d["requests"]
        self.faults = self.d.get("faults", [])
        self.by_id = {r["id"]: r for r in self.requests}

    def request(self, rid: str) -> dict:
        return self.by_id[rid]

    def fault(self, kind, stage=None, rid=None, chunk=None) -> dict | None:
        for f in self.faults:
            if f["kind"] != kind:
                continue
            if stage is not None and f.get("stage") != stage:
                continue
            if rid is not None and f.get("request") not in (None, rid):
                continue
            if chunk is not None and f.get("chunk") not in (None, chunk):
                continue
            return f
        return None

    async def run_all(self, one) -> None:
        """Runs `one(request)` for each: at its start_ms, or, with `concurrency`, as many at once, in order."""
        slots = asyncio.Semaphore(self.d.get("concurrency") or len(self.requests))

        async def at_its_time(r):
            async with slots:
                await asyncio.sleep(r.get("start_ms", 0) / 1e3)
                for again in range(r.get("repeat", 1)):
                    await one(r, again)

        await asyncio.gather(*(at_its_time(r) for r in self.requests))


def compute(truth, scenario, stage, rid, chunk, ms, busy=0.25):
    """Stands for one model step: a share of it burns CPU, the rest blocks, like a GPU wait."""
    f = scenario.fault("slow", stage, rid, chunk)
    if f:
        ms += f["ms"]
    truth.log("compute_start", rid, chunk)
    t0 = time.monotonic_ns()
    while time.monotonic_ns() - t0 < ms * busy * 1e6:
        pass
    rest = ms / 1e3 - (time.monotonic_ns() - t0) / 1e9
    if rest > 0:
        time.sleep(rest)
    truth.log("compute_end", rid, chunk)


def maybe_exit(truth, scenario, stage, rid, chunk):
    f = scenario.fault("exit", stage, rid, chunk)
    if f and f.get("chunk") == chunk:
        truth.log("fault_exit", rid, chunk)
        os._exit(f.get("status", 1))


class Gate:
    """Tells the parent how far a run is, and with --hold waits for it.

    One JSON line each on standard output: {"at":"ready","pids":{stage: pid}} when every stage could take a request,
    {"at":"done"} when the last request has ended and the stages still live. With --hold a line on standard input
    lets the run go on from either; its end ends the run at once.
    """

    def __init__(self, hold: bool):
        self.hold = hold

    def pass_through(self, at: str, **more) -> bool:
        """False: the parent has gone."""
        print(json.dumps({"at": at, **more}), flush=True)
        return not self.hold or sys.stdin.readline() != ""


def wait_until_ready(directory: str, stages: dict, seconds: float = 120, event: str = "ready") -> dict[str, int]:
    """Waits until each stage's log has the event, and returns the pids. `stages`: name to multiprocessing.Process."""
    deadline = time.monotonic() + seconds
    missing = dict(stages)
    while missing:
        for name, process in list(missing.items()):
            alive = process.is_alive()  # asked first: what a stage wrote before its end counts
            if has_event(truth_file(directory, name), event):
                del missing[name]
            elif not alive:
                raise SystemExit(f"stage {name} ended with status {process.exitcode} and was never {event}")
        if missing and time.monotonic() > deadline:
            raise SystemExit(f"not {event} after {seconds:.0f} s: {', '.join(missing)}")
        time.sleep(0.05)
    return {"api": os.getpid(), **{name: process.pid for name, process in stages.items()}}


def has_event(path: str, event: str) -> bool:
    try:
        with open(path) as f:
            return any(f'"event": "{event}"' in line for line in f)
    except FileNotFoundError:
        return False


def arguments(doc: str) -> argparse.Namespace:
    """The command line of every harness; makes the folder, which must hold no earlier truth."""
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("scenario", help="the scenario file")
    p.add_argument("out", help="the folder for truth-STAGE.jsonl")
    p.add_argument("--hold", action="store_true", help="before the first request and after the last wait for a line on stdin")
    a = p.parse_args()
    a.scenario, a.out = os.path.abspath(a.scenario), os.path.abspath(a.out)
    os.makedirs(a.out, exist_ok=True)
    if old := [n for n in os.listdir(a.out) if n.startswith("truth-")]:
        p.error(f"{a.out} holds an earlier run's {old[0]}")
    return a


def run(serve) -> None:
    """Runs a harness's main coroutine; where it fails, its stages end with it."""
    try:
        asyncio.run(serve)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # an ordinary end would wait for the stages


def die_with_parent() -> None:
    """PR_SET_PDEATHSIG, run in a stage: none outlives a harness that was killed."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
