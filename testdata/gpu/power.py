"""What omnitap's GPU sampler says of a real card, against PyTorch and nvidia-smi.

    make test-gpu-power
    python3 testdata/gpu/power.py [--sampler bin/gpu-resources.test] [--ledger bin/gpu-hardware.test] [--seconds 20] [--out DIR]

Needs an NVIDIA GPU, nvidia-smi, PyTorch and pyarrow; no Go on that machine (`make build-gpu-tests` makes the two test
binaries). A program takes 4 GiB of the card and waits; omnitap samples it for SECONDS idle and SECONDS under matrix
products, into resources.parquet. Checked: every sample is there; power, clocks, use, temperature and memory against
nvidia-smi; the memory of the process against torch.cuda; integrated power against the card's energy counter within 5 %;
every null has a reason; the process is joined to its stage; what a sample costs. Then what the ledger reads of the card
once (probes/host/hardware) against nvidia-smi. Prints a line a check and "N passed, M failed"; exit 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GIB = 1 << 30
SMI = ("power.draw.instant", "clocks.sm", "clocks.mem", "utilization.gpu", "memory.used", "temperature.gpu")


def program() -> None:
    """The load: says READY with its pid and its card, then does what each line of its input says."""
    import torch

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    held = torch.empty(4 * GIB, device="cuda", dtype=torch.uint8)
    out = a @ b
    torch.cuda.synchronize()
    print("READY", os.getpid(), "GPU-" + str(torch.cuda.get_device_properties(0).uuid), flush=True)
    for line in sys.stdin:
        what, *args = line.split()
        if what == "load":
            done, end = 0, time.monotonic() + float(args[0])
            while time.monotonic() < end:
                for _ in range(20):
                    torch.matmul(a, b, out=out)
                torch.cuda.synchronize()
                done += 20
            print("DONE", done, flush=True)
        elif what == "memory":
            free, total = torch.cuda.mem_get_info()
            print("MEMORY", torch.cuda.memory_reserved(), total - free, total, flush=True)
    del held


class Child:
    def __init__(self, args: list[str], env: dict[str, str] | None = None):
        self.p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})

    def say(self, line: str) -> None:
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()

    def hear(self, word: str) -> list[str]:
        """The words behind a word that begins a line; other lines are printed."""
        for line in self.p.stdout:
            if line.startswith(word):
                return line.split()[1:]
            print("  |", line.rstrip())
        raise SystemExit(f"{self.p.args[0]} ended without {word}")

    def stop(self) -> int:
        self.p.stdin.close()
        rest = self.p.stdout.read()
        if rest.strip():
            print("  |", rest.strip().replace("\n", "\n  | "))
        return self.p.wait(60)


def smi(query: str, fields: tuple[str, ...], uuid: str = "") -> list[list[str]]:
    out = subprocess.run(["nvidia-smi", f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits", *(["--id=" + uuid] if uuid else [])],
                         capture_output=True, text=True, check=True, timeout=30).stdout
    return [[v.strip() for v in line.split(",")] for line in out.splitlines() if line.strip()]


class Watch:
    """nvidia-smi's view of a card, once a second in a thread, until seen() is called."""

    def __init__(self, uuid: str):
        self.uuid, self.rows, self.end = uuid, [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.end.wait(1):
            self.rows.append(smi("gpu", SMI, self.uuid)[0])

    def seen(self) -> dict[str, float]:
        self.end.set()
        self.thread.join()
        return {name: statistics.median(float(r[i]) for r in self.rows) for i, name in enumerate(SMI)}


class Checks:
    passed = failed = 0

    def check(self, what: str, got, ok: bool, want: str) -> None:
        self.passed, self.failed = self.passed + bool(ok), self.failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'} {what}: {got}{'' if ok else f', want {want}'}", flush=True)

    def near(self, what: str, got, want: float, share: float, slack: float = 0) -> None:
        ok = got is not None and abs(got - want) <= max(share * abs(want), slack)
        self.check(what, got, ok, f"{want} within {share:.0%} or {slack}")


def median(rows: list[dict], name: str):
    values = [r[name] for r in rows if r[name] is not None]
    return statistics.median(values) if values else None


def check_phase(c: Checks, name: str, rows: list[dict], seen: dict[str, float], seconds: float) -> None:
    c.check(f"{name}: samples", len(rows), len(rows) >= 9.5 * seconds, f"at least {9.5 * seconds:.0f}")
    c.near(f"{name}: power_w", median(rows, "power_w"), seen["power.draw.instant"], 0.10, 8)
    c.near(f"{name}: sm_clock_mhz", median(rows, "sm_clock_mhz"), seen["clocks.sm"], 0.05, 30)
    c.near(f"{name}: memory_clock_mhz", median(rows, "memory_clock_mhz"), seen["clocks.mem"], 0.01)
    c.near(f"{name}: gpu_percent", median(rows, "gpu_percent"), seen["utilization.gpu"], 0.05, 5)
    c.near(f"{name}: temperature_c", median(rows, "temperature_c"), seen["temperature.gpu"], 0.05, 4)
    c.near(f"{name}: gpu_memory_used_bytes", median(rows, "gpu_memory_used_bytes"), seen["memory.used"] * (1 << 20), 0.01, 32 << 20)
    throttle = {r["throttle"] for r in rows}
    c.check(f"{name}: throttle", sorted(map(str, throttle)), None not in throttle, "known")
    columns = ("power_w", "power_average_w", "energy_mj", "gpu_percent", "gpu_memory_percent", "gpu_memory_used_bytes", "gpu_memory_total_bytes",
               "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttle_bits")
    bare = {k for r in rows for k in columns if (r[k] is None) != (k in json.loads(r["unmeasured"] or "{}"))}
    c.check(f"{name}: nulls without a reason, or reasons without a null", sorted(bare), not bare, "none")
    print(f"     {name}: null of the card:", json.loads(rows[-1]["unmeasured"] or "{}"))


def check_energy(c: Checks, out: pathlib.Path, successes: int) -> None:
    e = json.loads((out / "energy.json").read_text())
    device = next(d for d in e["devices"] if d["load"]["counter_j"] is not None)
    for phase in ("idle", "load"):
        r = device[phase]
        print(f"     {phase}: counter {r['counter_j']} J, power {r['power_j']} J over {r['power_s']:.2f} s, {r['samples']} samples, longest gap {r['longest_gap_ms']:.0f} ms")
        c.near(f"{phase}: integrated power by the energy counter", r["power_j"] and r["counter_j"] and r["power_j"] / r["counter_j"], 1, 0.05)
    print(f"     idle {e['counter']['idle_w']} W by the counter, {e['power']['idle_w']} W by power ({e['power']['sensor']}); warnings {e['warnings']}")
    c.check("preferred", e["preferred"], e["preferred"] == "counter", "counter")
    net = e["counter"]["net_j"]
    c.check("net energy", net, net is not None and net > 0, "above 0")
    c.near("energy per success", e["counter"]["per_success_j"], (net or 0) / successes, 1e-6)


def check_process(c: Checks, rows: list[dict], pid: int, memory: list[int], apps: list[list[str]], used: float) -> None:
    reserved, taken, total = memory
    mine = [r for r in rows if r["kind"] == "gpu_process" and r["pid"] == pid]
    c.check("rows of the process on the card", len(mine), bool(mine), "some: NVML tells its pid")
    if mine:
        got = median(mine, "gpu_memory_used_bytes")
        c.check("memory of the process against torch.cuda.memory_reserved", got, got is not None and reserved <= got <= reserved + 2 * GIB, f"{reserved} and its context")
        listed = [float(a[1]) * (1 << 20) for a in apps if a[0] == str(pid)]
        c.near("memory of the process against nvidia-smi", got, listed[0] if listed else 0, 0.001, 2 << 20)
        c.check("its stage", {r["stage"] for r in mine[1:]}, {r["stage"] for r in mine[1:]} == {"matmul"}, "matmul")
        print("     its use of the card under load:", median(mine[-15:-1], "gpu_percent"), "percent;", mine[-2]["unmeasured"])
    c.near("memory of the card against torch.cuda.mem_get_info", used, taken, 0.02, 1.5 * GIB)
    card = median([r for r in rows if r["kind"] == "gpu"], "gpu_memory_total_bytes")
    c.near("memory of the card in all", card, total, 0.02)
    host = [r for r in rows if r["kind"] == "process" and r["pid"] == pid]
    c.check("CPU and memory of the process", (host[-1]["cpu_ns"], host[-1]["rss_bytes"]), all(r["cpu_ns"] and r["rss_bytes"] for r in host), "measured")


def check_ledger(c: Checks, ledger: str, uuid: str) -> None:
    out = subprocess.run([ledger, "-test.run", "^TestRealNVML$", "-test.v"], capture_output=True, text=True, timeout=60)
    c.check("ledger: TestRealNVML", out.returncode, out.returncode == 0, f"0: {out.stdout}{out.stderr}")
    cards = [json.loads(line[line.index("{"):line.rindex("}") + 1]) for line in out.stdout.splitlines() if '"uuid"' in line]
    card = next((d for d in cards if d["uuid"] == uuid), None)
    c.check("ledger: the card is there", [d["uuid"] for d in cards], card is not None, uuid)
    if card is None:
        return
    fields = ("name", "memory.total", "clocks.max.gr", "clocks.max.mem", "enforced.power.limit", "power.default_limit", "mig.mode.current",
              "persistence_mode", "ecc.mode.current", "compute_mode", "pci.bus_id")
    want = dict(zip(fields, smi("gpu", fields, uuid)[0]))
    on = {"Enabled": True, "Disabled": False, "[N/A]": None}
    c.check("ledger: name", card["name"], card["name"] == want["name"], want["name"])
    c.near("ledger: memory", card["memory_bytes"], float(want["memory.total"]) * (1 << 20), 0.001)
    c.near("ledger: highest clock", card["max_graphics_mhz"], float(want["clocks.max.gr"]), 0)
    c.near("ledger: highest clock of the memory", card["max_memory_mhz"], float(want["clocks.max.mem"]), 0)
    c.near("ledger: power limit", card["enforced_power_limit_w"], float(want["enforced.power.limit"]), 0, 0.01)
    c.near("ledger: default power limit", card["default_power_limit_w"], float(want["power.default_limit"]), 0, 0.01)
    for name, key in (("mig", "mig.mode.current"), ("persistence", "persistence_mode"), ("ecc", "ecc.mode.current")):
        c.check(f"ledger: {name}", card[name], card[name] == on.get(want[key], want[key]), want[key])
    c.check("ledger: compute mode", card["compute_mode"], card["compute_mode"] == want["compute_mode"].lower().replace(" ", "_"), want["compute_mode"])
    c.check("ledger: bus", card["pci_bus"], card["pci_bus"].lower() == want["pci.bus_id"].lower(), want["pci.bus_id"])
    print("     ledger: null of the card:", card["unmeasured"])


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--program", action="store_true")
    p.add_argument("--sampler", default="bin/gpu-resources.test")
    p.add_argument("--ledger", default="bin/gpu-hardware.test")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    if a.program:
        program()
        return 0
    import pyarrow.parquet

    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="gpu-power-"))
    out.mkdir(parents=True, exist_ok=True)
    c = Checks()
    load = Child([sys.executable, __file__, "--program"])
    pid, uuid = load.hear("READY")
    load.say("memory")
    memory = [int(v) for v in load.hear("MEMORY")]
    sampler = Child([a.sampler, "-test.run", "^TestRealGPU$", "-test.timeout", "5m"], {"REQUIRE_GPU": "1", "OMNITAP_GPU_OUT": str(out), "OMNITAP_GPU_PID": pid})
    sampler.hear("SAMPLING")
    time.sleep(5)  # the card's clocks fall

    windows, seen, successes = {}, {}, 0
    for phase in ("idle", "load"):
        if phase == "load":
            load.say(f"load {a.seconds + 4}")
            time.sleep(2)  # the edge is not what is compared
        watch, begin = Watch(uuid), time.monotonic_ns()
        time.sleep(a.seconds)
        windows[phase] = (begin, time.monotonic_ns())
        seen[phase] = watch.seen()
        sampler.say(f"{phase} {windows[phase][0]} {windows[phase][1]}")
    apps = smi("compute-apps", ("pid", "used_memory"))
    successes = int(load.hear("DONE")[0])
    sampler.say(f"successes {successes}")
    time.sleep(1.5)  # samples behind the window
    sampler.say("stop")
    c.check("the sampler's own checks", rc := sampler.stop(), rc == 0, "0")
    load.stop()

    rows = pyarrow.parquet.read_table(out / "resources.parquet").to_pylist()
    card = [r for r in rows if r["kind"] == "gpu" and r["device_uuid"] == uuid]
    for phase, (begin, end) in windows.items():
        check_phase(c, phase, [r for r in card if begin <= r["mono_ns"] <= end], seen[phase], a.seconds)
    of = {phase: median([r for r in card if w[0] <= r["mono_ns"] <= w[1]], "power_w") for phase, w in windows.items()}
    c.check("power under load against idle", of, of["idle"] and of["load"] > 2 * of["idle"], "more than twice as much")
    check_energy(c, out, successes)
    check_process(c, rows, int(pid), memory, apps, median(card, "gpu_memory_used_bytes"))
    status = json.loads((out / "status.json").read_text())
    g = status["gpu"]
    cost = g["cpu_ns"] / g["samples"]
    print(f"     status: {json.dumps(status)}")
    print(f"     a sample of {g['devices']} card(s) took {g['took_ns'] / g['samples'] / 1e6:.3f} ms (longest {g['took_max_ns'] / 1e6:.1f} ms), {cost / 1e6:.3f} ms of CPU")
    c.check("share of a core for sampling at 10 Hz", f"{cost * 10 / 1e9:.3%}", cost * 10 / 1e9 < 0.02 * g["devices"], "below 2 % a card")
    check_ledger(c, a.ledger, uuid)
    print(f"{c.passed} passed, {c.failed} failed; {out}")
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
