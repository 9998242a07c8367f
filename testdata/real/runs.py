"""The experiments of configs/experiments on the whole vLLM-Omni server, by `omnitap run` around its own load generator. As root.

    PYTHON testdata/real/runs.py --omnitap bin/omnitap [--experiment NAME]... [--rounds N] [--prompts N] [--slow MS] [--out DIR]

first-audio   one server with random weights on the CPU, `vllm bench serve --omni` in the order A B B A, N rounds: in B the
              talker sleeps MS a step. Checked: every run is sealed and `omnitap verify` passes; the generator's own times of
              each request are omnitap's (its AUDIO_TTFP is the first audio event); the slow-down shows in talker.compute, and
              in no other gap of the way to the first sound; `omnitap compare` says so, and its gate fails.
hand-over     on the same server, one chat at a time by curl: every edge has its bytes and p50, p95, p99.
batch-limit   a server anew for each run, with max_num_seqs 1 and 4, in the order A B B A; the answer and the noise beside it.
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

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "configs" / "experiments"


CHAT = json.dumps({"model": "tiny-omni", "messages": [{"role": "user", "content": "Say hello."}], "stream": True, "modalities": ["text", "audio"], "max_tokens": 10})


def bench(model: pathlib.Path, prompts: int, result: pathlib.Path, concurrency: int = 1) -> list[str]:
    vllm = pathlib.Path(servers.environment("vllm-omni-cpu")).parent / "vllm-omni"
    return [str(vllm), "bench", "serve", "--omni", "--backend", "openai-chat-omni", "--endpoint", "/v1/chat/completions",
            "--model", "tiny-omni", "--served-model-name", "tiny-omni", "--tokenizer", str(model), "--dataset-name", "random",
            "--random-input-len", "20", "--random-output-len", "10", "--num-prompts", str(prompts), "--max-concurrency", str(concurrency),
            "--percentile-metrics", "ttft,tpot,e2el,audio_ttfp,audio_rtf,audio_duration", "--save-result", "--save-detailed",
            "--result-dir", str(result.parent), "--result-filename", result.name]


def one(a: argparse.Namespace, out: pathlib.Path, name: str, upstream: str, experiment: str, command: list[str]) -> pathlib.Path:
    """A run of a shipped experiment, as it is shipped but for the calibration, which takes hours with answers of seconds, and
    for what random weights do: an answer may be without sound, or one chunk, of which nobody can tell whether it repeats another."""
    directory = out / name
    plan = out / f"{experiment}.yaml"
    plan.write_text((EXPERIMENTS / plan.name).read_text().replace("invariants: [finite, format_constant, repeated_chunk, whole_frames]", "invariants: []")
                    .replace("allowed_failure_rate: 0.01", "allowed_failure_rate: 0.3").replace("allowed_failure_rate: 0\n", "allowed_failure_rate: 0.3\n")
                    .replace("  failure_rate: 0\n", "  failure_rate: 0.5\n").replace("  failure_rate: 0.2\n", "  failure_rate: 0.5\n"))
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    (out / "config.yaml").write_text("stages: {budget: 0.9}\n")
    done = subprocess.run([a.omnitap, "run", "--upstream", upstream, "--experiment", str(plan), "--config", str(out / "config.yaml"),
                           "--probes", "require", "--calibrate", "off", "--out", str(directory), "--", *command], env=env, cwd=out, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise SystemExit(f"run {name} ended with {done.returncode}:\n{done.stderr[-3000:]}\n{done.stdout[:1500]}")
    return directory


def record_chat(a: argparse.Namespace, out: pathlib.Path, upstream: str) -> None:
    """captures/chat, which the experiments name: a chat or two through `omnitap serve --capture`."""
    if (out / "captures").exists():
        return
    command = [a.omnitap, "serve", "--upstream", upstream, "--listen", "127.0.0.1:0", "--probes", "off", "--capture", str(out / "captures" / "chat")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as relay:
        address = next(x for x in relay.stderr if x.startswith("listening on ")).split()[2].rstrip(",")
        subprocess.run(["curl", "-q", "-sfN", f"http://{address}/v1/chat/completions", "-H", "Content-Type: application/json", "-d", CHAT], check=True,
                       stdout=subprocess.DEVNULL, timeout=600)
        relay.terminate()


def load(a: argparse.Namespace, out: pathlib.Path, name: str, model: pathlib.Path, prompts: int, concurrency: int = 1) -> list[str]:
    return ["sh", "-c", 'exec "$@" --base-url "$OMNITAP_URL"', "sh", *bench(model, prompts, out / f"{name}.bench.json", concurrency)]


def records(directory: pathlib.Path) -> list[dict]:
    return [json.loads(x) for x in (directory / "requests.jsonl").read_text().splitlines()]


def measured(directory: pathlib.Path) -> list[dict]:
    return [x for x in records(directory) if x["run_phase"] == "measured" and x["terminal"]["state"] == "success" and x["ttfa_ms"] is not None]


def as_generator(r: transfers.Report, directory: pathlib.Path, result: pathlib.Path) -> None:
    """What the generator saw of its requests is what the relay saw, but for the way between and the relay's own delay, which
    records tell: a server that takes all processors holds up the relay, too."""
    got = json.loads(result.read_text())
    mine = [x for x in records(directory) if x["flow"] == "chat"][-got["completed"]:]
    r.that(len(mine) == got["completed"], f"{directory.name}: {len(mine)} records, the generator has {got['completed']} requests")
    # Its AUDIO_TTFP is the first audio event; the answers have no text.
    first = statistics.mean((x["points"]["t_audio_event"] - x["points"]["t_in"]) / 1e6 for x in mine)
    off = got["mean_audio_ttfp_ms"] - first
    own = statistics.mean(x["own_delay_us"]["max"] / 1e3 if x["own_delay_us"] else 0 for x in mine)
    r.that(-1 <= off <= 25 + own, f"{directory.name}: AUDIO_TTFP of the generator is {off:.1f} ms above ours, {own:.1f} of it our own delay")
    e2el = got["mean_e2el_ms"] - statistics.mean(x["jct_ms"] for x in mine)
    r.that(-1 <= e2el <= 40 + own, f"{directory.name}: E2EL of the generator is {e2el:.1f} ms above ours, {own:.1f} of it our own delay")
    r.table.append(f"| {directory.name} | generator − omnitap: AUDIO_TTFP {off:+.1f} ms, E2EL {e2el:+.1f} ms, own delay {own:.1f} ms | {len(mine)} requests |")


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
    p.add_argument("--experiment", action="append", choices=["first-audio", "hand-over", "batch-limit"])
    p.add_argument("--rounds", type=int, default=2, help="of A B B A; with one, no gap can be told for sure")
    p.add_argument("--prompts", type=int, default=8, help="measured ones of a run")
    p.add_argument("--slow", type=int, default=60, help="milliseconds a step of the talker")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    a.omnitap = str(pathlib.Path(a.omnitap).resolve())
    a.out = a.out and a.out.resolve()
    a.model = pathlib.Path(servers.environment("vllm-omni-cpu")).parent.parent / "models" / "omni"
    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="runs-"))
    out.mkdir(parents=True, exist_ok=True)
    wanted = a.experiment or ["first-audio", "hand-over", "batch-limit"]
    r = transfers.Report()
    os.environ["OMNI_CPU_SLOW"] = str(out / "slow")
    if {"first-audio", "hand-over"} & {*wanted}:
        with_one_server(a, r, out, wanted)
    if "batch-limit" in wanted:
        batch_limit(a, r, out)
    print(r)
    print(f"{r.passed} passed, {len(r.failed)} failed (kept: {out})")
    return 1 if r.failed else 0


def with_one_server(a: argparse.Namespace, r: transfers.Report, out: pathlib.Path, wanted: list[str]) -> None:
    slow = out / "slow"
    (out / "server").mkdir(exist_ok=True)
    s = stages.CpuServer("omni", out / "server")
    runs: dict[str, list[pathlib.Path]] = {"A": [], "B": []}
    chats = None
    try:
        upstream = f"http://127.0.0.1:{s.port}"
        record_chat(a, out, upstream)
        warmup = 10  # the experiment's
        one(a, out, "first", upstream, "first-audio", load(a, out, "first", a.model, warmup + 2))  # the server's own first requests are slow
        if "first-audio" in wanted:
            for i, kind in enumerate("ABBA" * a.rounds):
                if kind == "B":
                    slow.write_text(f"1 {a.slow}\n")
                else:
                    slow.unlink(missing_ok=True)
                name = f"{kind}{i}"
                runs[kind].append(one(a, out, name, upstream, "first-audio", load(a, out, name, a.model, warmup + a.prompts)))
        slow.unlink(missing_ok=True)
        if "hand-over" in wanted:
            script = 'for i in $(seq 40); do curl -q -sfN "$OPENAI_BASE_URL/chat/completions" -H "Content-Type: application/json" -d "$1" >/dev/null || exit 1; done'
            chats = one(a, out, "hand-over", upstream, "hand-over", ["sh", "-c", script, "sh", CHAT])
    finally:
        slow.unlink(missing_ok=True)
        s.stop()
    if runs["A"]:
        judge(a, r, out, runs)
    if chats:
        edges(a, r, chats)


def edges(a: argparse.Namespace, r: transfers.Report, directory: pathlib.Path) -> None:
    """Every chat was handed over from the thinker to the talker to code2wav, by shared memory, with bytes and times."""
    sealed(a, r, directory)
    shown = subprocess.run([a.omnitap, "report", str(directory)], capture_output=True, text=True)
    print(shown.stdout[-6000:])
    mine = measured(directory)
    r.that(12 <= len(mine) <= 20, f"{len(mine)} chats were measured with sound, 20 of 40 are warm-up")
    for edge in (("thinker", "talker"), ("talker", "code2wav")):
        # an unread one was made for a stage that had ended: it has no end
        moved = [[t for t in x["transfers"] if (t["from"], t["to"]) == edge and t["transport"] == "shm" and not t.get("unread")] for x in mine]
        r.that(all(moved), f"{edge}: {sum(not m for m in moved)} chats have no hand-over")
        r.that(all(t["bytes"] > 0 and t["end_ns"] > t["start_ns"] for m in moved for t in m), f"{edge}: a hand-over without bytes or times")
        r.that(shown.returncode == 0 and "->".join(edge) in shown.stdout, f"report names no {edge}")


def steps(a: argparse.Namespace, r: transfers.Report, runs: dict[str, list[pathlib.Path]]) -> None:
    """A step of the talker takes the slow-down longer, one of the thinker does not: that is the stage, and no other one."""
    per: dict[str, dict[str, float]] = {}
    for side, directories in runs.items():
        took: dict[str, list[float]] = {}
        for x in (x for d in directories for x in measured(d)):
            for s in x["stages"] or []:
                if s["service_ms"] and s["steps"]:
                    took.setdefault(s["stage"], []).append(s["service_ms"] / s["steps"])
        per[side] = {k: statistics.median(v) for k, v in took.items()}
    for stage, want in (("talker", a.slow), ("thinker", 0)):
        got = per["B"][stage] - per["A"][stage]
        r.table.append(f"| a step of the {stage} | {per['A'][stage]:.1f} → {per['B'][stage]:.1f} ms | {got:+.1f} ms |")
        r.that(abs(got - want) <= 0.2 * a.slow, f"a step of the {stage} takes {got:+.1f} ms, {want} were put in")


def batch_limit(a: argparse.Namespace, r: transfers.Report, out: pathlib.Path) -> None:
    """Two limits, in turns, a server anew for each run, four requests at once."""
    stock = (pathlib.Path(__file__).parent / "vllm-omni-cpu" / "deploy.yaml").read_text()
    runs: dict[int, list[pathlib.Path]] = {1: [], 4: []}
    for i, limit in enumerate((1, 4, 4, 1)):
        deploy = out / f"seqs-{limit}.yaml"
        deploy.write_text(stock.replace("max_num_seqs: 4", f"max_num_seqs: {limit}"))
        os.environ["DEPLOY"] = str(deploy.resolve())
        name = f"seqs-{limit}-{i}"
        (out / f"server-{name}").mkdir(exist_ok=True)
        s = stages.CpuServer("omni", out / f"server-{name}")
        try:
            upstream = f"http://127.0.0.1:{s.port}"
            record_chat(a, out, upstream)
            runs[limit].append(one(a, out, name, upstream, "batch-limit", load(a, out, name, a.model, 20 + 3 * a.prompts, 4)))
        finally:
            s.stop()
            del os.environ["DEPLOY"]
    for d in runs[1] + runs[4]:
        sealed(a, r, d)
        as_generator(r, d, out / f"{d.name}.bench.json")
    rate = {k: [len(measured(d)) / ((max(x["points"]["t_term"] for x in measured(d)) - min(x["points"]["t_in"] for x in measured(d))) / 1e9) for d in v] for k, v in runs.items()}
    r.table.append(f"| batch limit | 1: {rate[1]} requests/s; 4: {rate[4]} requests/s | |")
    r.that(min(rate[4]) > 1.2 * max(rate[1]), f"four at once gain nothing by a limit of 4: {rate}")
    for before, after, what in ((runs[1], runs[4], "limit 1 against 4"), (runs[1][:1] + runs[4][:1], runs[4][1:] + runs[1][1:], "the noise: the first half against the second")):
        c = subprocess.run([a.omnitap, "compare", *map(str, before), "--", *map(str, after)], capture_output=True, text=True)
        print(f"== {what}\n{c.stdout}{c.stderr}")
        r.that(c.returncode == 0 and c.stdout, f"compare ({what}) ends with {c.returncode}: {c.stderr[-500:]}")


def sealed(a: argparse.Namespace, r: transfers.Report, d: pathlib.Path) -> None:
    v = subprocess.run([a.omnitap, "verify", str(d)], capture_output=True, text=True)
    r.that(v.returncode == 0, f"verify {d.name} ends with {v.returncode}: {v.stdout[-800:]}{v.stderr[-300:]}")


def judge(a: argparse.Namespace, r: transfers.Report, out: pathlib.Path, runs: dict[str, list[pathlib.Path]]) -> None:
    for d in runs["A"] + runs["B"]:
        sealed(a, r, d)
        as_generator(r, d, out / f"{d.name}.bench.json")
    before, after = gaps(runs["A"]), gaps(runs["B"])
    grew = {k: after.get(k, 0) - before.get(k, 0) for k in {*before, *after}}
    whole = sum(grew.values())
    r.that(whole > 2 * a.slow, f"TTFA grew by {whole:.0f} ms only")
    mine = sum(v for k, v in grew.items() if "talker.compute" in k)
    # A slower talker waits for less: what the thinker decodes meanwhile is no longer on the way, and leaves its gap for the talker's.
    overlap = max(-grew.get("thinker.decode", 0), 0)
    r.that(0.8 * whole <= mine - overlap <= 1.2 * whole, f"talker.compute grew by {mine:.0f} ms, {overlap:.0f} of it the thinker's, of {whole:.0f}")
    steps(a, r, runs)
    for k, v in sorted(grew.items(), key=lambda kv: -abs(kv[1])):
        r.table.append(f"| {k} | {before.get(k, 0):.1f} → {after.get(k, 0):.1f} ms | {v:+.1f} ms |")
        r.that("talker.compute" in k or abs(v) <= 0.2 * whole or k == "thinker.decode" and v < 0, f"{k} changed by {v:+.0f} ms, TTFA by {whole:+.0f}")
    c = subprocess.run([a.omnitap, "compare", "--gate", "ttfa_p50 <= +5%", *map(str, runs["A"]), "--", *map(str, runs["B"])], capture_output=True, text=True)
    print(c.stdout + c.stderr)
    head = c.stdout.splitlines()[:1]
    r.that(c.stdout.startswith("chat: TTFA +"), f"compare begins with {head}")
    r.that(c.returncode == 1, f"the gate of +5 % ends with {c.returncode}")
    if a.rounds > 1:  # two runs a side tell that TTFA grew; for a gap of it to be sure, four are needed
        r.that("talker.compute" in head[0], f"compare begins with {head}")


if __name__ == "__main__":
    sys.exit(main())
