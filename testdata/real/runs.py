"""`omnitap run` around vLLM-Omni's own load generator, on the whole server, with a known slow-down in one stage. As root.

    PYTHON testdata/real/runs.py --omnitap bin/omnitap [--prompts N] [--slow MS] [--out DIR]

Starts the whole vLLM-Omni server with random weights on the CPU and runs `vllm bench serve --omni` through `omnitap run`
four times, in the order A B B A: in B the talker sleeps MS a step. Checked: every run is sealed and `omnitap verify` passes;
the generator's own times of each request are omnitap's (its AUDIO_TTFP is the first audio event); the slow-down shows in
talker.compute, and in no other gap of the way to the first sound; `omnitap compare` says so.
Prints the differences and "N passed, M failed"; exit 1 if one failed.
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

sys.dont_write_bytecode = True

import servers
import stages
import transfers

EXPERIMENT = """question: where does the talker's slow-down show?
primary: ttfa_p50
allowed_failure_rate: 0
workload: {reference: "vllm bench serve --omni, random, 20 tokens in, 10 out"}
warmup: {requests: 2}
calibration: {off: true}
"""


def bench(url: str, model: pathlib.Path, prompts: int, result: pathlib.Path) -> list[str]:
    vllm = pathlib.Path(servers.environment("vllm-omni-cpu")).parent / "vllm-omni"
    return [str(vllm), "bench", "serve", "--omni", "--backend", "openai-chat-omni", "--endpoint", "/v1/chat/completions", "--base-url", url,
            "--model", "tiny-omni", "--served-model-name", "tiny-omni", "--tokenizer", str(model), "--dataset-name", "random",
            "--random-input-len", "20", "--random-output-len", "10", "--num-prompts", str(prompts), "--max-concurrency", "1",
            "--percentile-metrics", "ttft,tpot,e2el,audio_ttfp,audio_rtf,audio_duration", "--save-result", "--save-detailed",
            "--result-dir", str(result.parent), "--result-filename", result.name]


def one(a: argparse.Namespace, out: pathlib.Path, name: str, upstream: str, model: pathlib.Path) -> pathlib.Path:
    directory = out / name
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    (out / "experiment.yaml").write_text(EXPERIMENT)
    (out / "config.yaml").write_text("stages: {budget: 0.9}\n")
    command = ["sh", "-c", 'exec "$@" --base-url "$OMNITAP_URL"', "sh", *bench("http://unused", model, a.prompts, out / f"{name}.bench.json")]
    done = subprocess.run([a.omnitap, "run", "--upstream", upstream, "--experiment", str(out / "experiment.yaml"), "--config", str(out / "config.yaml"), "--probes", "require",
                           "--out", str(directory), "--", *command], env=env, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"run {name} ended with {done.returncode}:\n{done.stderr[-3000:]}\n{done.stdout[:1500]}")
    return directory


def records(directory: pathlib.Path) -> list[dict]:
    return [json.loads(x) for x in (directory / "requests.jsonl").read_text().splitlines()]


def measured(directory: pathlib.Path) -> list[dict]:
    return [x for x in records(directory) if x["run_phase"] == "measured" and x["terminal"]["state"] == "success" and x["ttfa_ms"] is not None]


def as_generator(r: transfers.Report, directory: pathlib.Path, result: pathlib.Path) -> None:
    """What the generator saw of its requests is what the relay saw, but for the way between and its own delay."""
    got = json.loads(result.read_text())
    mine = [x for x in records(directory) if x["flow"] == "chat"][-got["completed"]:]
    r.that(len(mine) == got["completed"], f"{directory.name}: {len(mine)} records, the generator has {got['completed']} requests")
    # Its AUDIO_TTFP is the first audio event; the answers have no text.
    first = statistics.mean((x["points"]["t_audio_event"] - x["points"]["t_in"]) / 1e6 for x in mine)
    off = got["mean_audio_ttfp_ms"] - first
    r.that(-1 <= off <= 25, f"{directory.name}: AUDIO_TTFP of the generator is {off:.1f} ms above ours")
    e2el = got["mean_e2el_ms"] - statistics.mean(x["jct_ms"] for x in mine)
    r.that(-1 <= e2el <= 40, f"{directory.name}: E2EL of the generator is {e2el:.1f} ms above ours")
    r.table.append(f"| {directory.name} | generator − omnitap: AUDIO_TTFP {off:+.1f} ms, E2EL {e2el:+.1f} ms | {len(mine)} requests |")


def gaps(directories: list[pathlib.Path]) -> dict[str, float]:
    """The mean of each gap of the way to the first sound, merged ones by their names."""
    sums: dict[str, list[float]] = {}
    n = 0
    for d in directories:
        for x in measured(d):
            if not x["critical_path"]:
                continue
            n += 1
            for g in x["critical_path"]:
                sums.setdefault(g["gap"], []).append(g["ms"])
    return {k: sum(v) / n for k, v in sums.items()}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--omnitap", required=True)
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--slow", type=int, default=60, help="milliseconds a step of the talker")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    a.omnitap = str(pathlib.Path(a.omnitap).resolve())
    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="runs-"))
    out.mkdir(parents=True, exist_ok=True)
    r = transfers.Report()
    slow = out / "slow"
    os.environ["OMNI_CPU_SLOW"] = str(slow)
    (out / "server").mkdir(exist_ok=True)
    s = stages.CpuServer("omni", out / "server")
    try:
        model = pathlib.Path(servers.environment("vllm-omni-cpu")).parent.parent / "models" / "omni"
        upstream = f"http://127.0.0.1:{s.port}"
        runs: dict[str, list[pathlib.Path]] = {"A": [], "B": []}
        one(a, out, "first", upstream, model)  # the server's own first requests are slow
        for i, kind in enumerate("ABBA"):
            if kind == "B":
                slow.write_text(f"1 {a.slow}\n")
            else:
                slow.unlink(missing_ok=True)
            runs[kind].append(one(a, out, f"{kind}{i}", upstream, model))
    finally:
        slow.unlink(missing_ok=True)
        s.stop()
    judge(a, r, out, runs)
    print(r)
    print(f"{r.passed} passed, {len(r.failed)} failed (kept: {out})")
    return 1 if r.failed else 0


def judge(a: argparse.Namespace, r: transfers.Report, out: pathlib.Path, runs: dict[str, list[pathlib.Path]]) -> None:
    for d in runs["A"] + runs["B"]:
        v = subprocess.run([a.omnitap, "verify", str(d)], capture_output=True, text=True)
        r.that(v.returncode == 0, f"verify {d.name} ends with {v.returncode}: {v.stdout[-800:]}{v.stderr[-300:]}")
        as_generator(r, d, out / f"{d.name}.bench.json")
    before, after = gaps(runs["A"]), gaps(runs["B"])
    grew = {k: after.get(k, 0) - before.get(k, 0) for k in {*before, *after}}
    whole = sum(grew.values())
    r.that(whole > 2 * a.slow, f"TTFA grew by {whole:.0f} ms only")
    mine = sum(v for k, v in grew.items() if "talker.compute" in k)
    r.that(0.8 * whole <= mine <= 1.2 * whole, f"talker.compute grew by {mine:.0f} of {whole:.0f} ms")
    for k, v in sorted(grew.items(), key=lambda kv: -abs(kv[1])):
        r.table.append(f"| {k} | {before.get(k, 0):.1f} → {after.get(k, 0):.1f} ms | {v:+.1f} ms |")
        r.that("talker.compute" in k or abs(v) <= 0.2 * whole, f"{k} changed by {v:+.0f} ms, TTFA by {whole:+.0f}")
    c = subprocess.run([a.omnitap, "compare", *map(str, runs["A"]), "--", *map(str, runs["B"])], capture_output=True, text=True)
    print(c.stdout + c.stderr)
    # Two runs a side tell that TTFA grew; for a gap of it to be sure, four are needed.
    r.that(c.stdout.startswith("chat: TTFA +"), f"compare begins with {c.stdout.splitlines()[:1]}")


if __name__ == "__main__":
    sys.exit(main())
