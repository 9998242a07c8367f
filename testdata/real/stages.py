"""Starts real stage processes for a test of the probes, asks them for work, and ends what it started.

    PYTHON testdata/real/stages.py --run vllm-omni|sglang-omni|mooncake [OPTION...]
    PYTHON testdata/real/stages.py --serve omni|tts|toy [OPTION...]

Options: --requests N, --concurrency N, --out DIR, --observe COMMAND; of --run also --faults and --scenario FILE.
PYTHON is that of testdata/clients/install.sh. COMMAND runs in a shell when every stage is ready and before the first
request, with the pid of the API process in OMNITAP_ROOT_PID; nothing is asked before it has printed a line, and SIGTERM
ends it after the last request, while the stages still live. Prints one JSON line: what was asked, how it ended,
how long it took, where the ground truth lies.
Times are CLOCK_MONOTONIC nanoseconds, the clock of the probes.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

sys.dont_write_bytecode = True

import servers
import transfers

CONNECTORS = servers.HERE / "connectors"
sys.path.insert(0, str(CONNECTORS))
import make_scenario

HARNESSES = {  # environment, script, scenario's server
    "vllm-omni": ("connectors", "vllm_omni_stages.py"),
    "sglang-omni": ("sglang-omni", "sglang_omni_stages.py"),
    "mooncake": ("connectors", "mooncake_pair.py"),
}


class Harness:
    """One of connectors/, held before the first request and after the last. `out` is a folder of its own."""

    def __init__(self, name: str, scenario: dict | str | os.PathLike, out: pathlib.Path):
        environment, script = HARNESSES[name]
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        if isinstance(scenario, dict):
            path = self.out / "scenario.json"
            path.write_text(json.dumps(scenario))
        else:
            path = pathlib.Path(scenario)
        self.log = self.out / "stderr.log"
        with open(self.log, "w") as err:
            self.p = subprocess.Popen(
                [servers.environment(environment), str(CONNECTORS / script), str(path), str(self.out), "--hold"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, preexec_fn=servers.die_with_parent)
        self.said: queue.Queue = queue.Queue()
        self.pids: dict[str, int] = {}
        self.sockets: set[str] = set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.p.stdout:  # the server's own log lines are in between
            if line.startswith('{"at": '):
                self.said.put(json.loads(line))
        self.said.put(None)

    def _wait(self, at: str, seconds: float) -> dict:
        try:
            said = self.said.get(timeout=seconds)
        except queue.Empty:
            said = None
        if said is None or said["at"] != at:
            self.stop()
            raise SystemExit(f"the harness is not {at} (said {said}):\n{self.log.read_text(errors='replace')[-3000:]}")
        return said

    def wait_ready(self, seconds: float = 180) -> dict[str, int]:
        """The pids by stage, that of the parent as "api", once every stage could take a request."""
        self.pids = self._wait("ready", seconds)["pids"]
        self.sockets = sockets_of(self.pids.values())
        return self.pids

    def _go_on(self) -> None:
        self.p.stdin.write("\n")
        self.p.stdin.flush()

    def release(self) -> None:
        """Starts the requests."""
        self._go_on()

    def wait_done(self, seconds: float = 300) -> None:
        """Returns when the last request has ended; the stages that no fault ended live on."""
        self._wait("done", seconds)

    def finish(self, seconds: float = 40) -> None:
        """Lets the stages end as they do."""
        self._go_on()
        try:
            code = self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self.stop()
        if code != 0:
            raise SystemExit(f"the harness ended with {code}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        """Ends what still runs, at once."""
        end_group(self.p)
        remove(self.sockets)

    def truth(self) -> list[dict]:
        """Every event of every stage, in the order of time."""
        return transfers.read_truth(str(self.out))

    def expected(self) -> list[dict]:
        return transfers.expected(self.truth())

    def requests(self) -> dict[str, int]:
        """How often requests were submitted and how they ended. Mooncake's pair has no API and so none."""
        n = {"submit": 0, "done": 0, "timeout": 0, "failed": 0}
        for e in self.truth():
            if e["event"] in n:
                n[e["event"]] += 1
        return n


class CpuServer(servers.Server):
    """The whole vLLM-Omni server with a tiny model: `omni` chats, `tts` speaks. Ready after some 150 s of CPU time."""

    name = "vllm-omni-cpu"

    def __init__(self, kind: str, work: pathlib.Path, options: tuple = ()):
        self.kind, self.work = kind, pathlib.Path(work)
        script = str(servers.HERE / "vllm-omni-cpu" / "serve.sh")
        super().__init__("sh", [script, str(work), kind, *options], self.work)
        self.pids = [self.proc.p.pid, *children(self.proc.p.pid)]
        self.sockets = sockets_of(self.pids)

    def comes_up(self) -> bool:
        """On a busy machine it takes longer than other servers; False at once where it has ended."""
        return super().comes_up() or super().comes_up()

    def truth(self) -> list[dict]:
        """A line a model step and request, in the order of time: `stage`, `request` (the engine's id), tokens or samples."""
        out = []
        for path in (self.work / f"truth-{self.kind}").glob("stage*.jsonl"):
            out += [json.loads(x) for x in path.read_text().splitlines(keepends=True) if x.endswith("}\n")]
        return sorted(out, key=lambda x: x["mono_ns"])

    def stop(self) -> None:
        """Takes about 15 s; removes what the server leaves in /dev/shm and in the folder for sockets."""
        self.proc.stop(40)
        remove(self.sockets)
        ids = {x["request"] for x in self.truth()}
        remove(f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if owner(n) in ids)


class ToyServer(servers.SglangOmni):
    """SGLang-Omni's server over toy stages, with its log in a folder that stays."""

    def __init__(self, work: pathlib.Path, options: tuple = ()):
        super().__init__(servers.environment("sglang-omni"), pathlib.Path(work), ("--realtime", "off", *options))

    def stop(self) -> None:
        servers.Server.stop(self)

    def start_profile(self, directory: pathlib.Path) -> None:
        """Lets the server's own profiler write events_STAGE_PID.jsonl (`timestamp_ns`: wall clock)."""
        self._post("/start_request_profile", {"run_id": "omnitap", "event_dir": str(directory)})

    def stop_profile(self) -> None:
        self._post("/stop_request_profile", {"run_id": "omnitap"})

    def _post(self, path: str, body: dict) -> None:
        import httpx

        httpx.post(f"http://127.0.0.1:{self.port}{path}", json=body, timeout=20).raise_for_status()


def owner(segment: str) -> str:
    """The request whose id stands in a name in /dev/shm: a segment's, or its lock file's."""
    return segment.removeprefix("shm_").removesuffix("_lockfile.lock").rsplit("_", 2)[0]


def children(pid: int) -> list[int]:
    """All descendants."""
    out = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            out += [child, *children(child)]
    return out


def sockets_of(pids) -> set[str]:
    """The files of the unix sockets that these processes have open; some are left behind by their end."""
    mine = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            mine |= {os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if os.path.islink(fd)}
    with open("/proc/net/unix") as f:
        rows = [line.split(maxsplit=7) for line in f.readlines()[1:]]
    return {r[7].strip() for r in rows if len(r) == 8 and r[7].startswith("/") and f"socket:[{r[6]}]" in mine}


def remove(paths) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def end_group(p: subprocess.Popen, seconds: float = 0) -> None:
    """SIGTERM and `seconds` to end, where any; then SIGKILL to the group, whose leader it is."""
    if seconds and p.poll() is None:
        p.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(seconds)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(p.pid, signal.SIGKILL)
    p.wait(10)


# --- asking a server


@dataclass
class Answer:
    """One request as its client saw it."""

    request_id: str  # as asked for in X-Request-Id
    id: str | None = None  # as the server says in the stream
    status: int | None = None
    error: str | None = None
    start_ns: int = 0
    first_text_ns: int | None = None
    first_audio_ns: int | None = None
    end_ns: int = 0
    text: str = ""
    audio_bytes: int = 0


def chat(base: str, model: str, request_id: str, text: str = "Say hello.", audio: bool = True) -> Answer:
    """A streamed chat with text and, where asked for, audio."""
    body = {"model": model, "stream": True, "modalities": ["text", "audio"] if audio else ["text"],
            "messages": [{"role": "user", "content": text}]}

    def take(a: Answer, r) -> None:
        for line in r.iter_lines():
            if not line.startswith("data: {"):
                continue
            now, d = time.monotonic_ns(), json.loads(line[6:])
            if "error" in d:
                a.error = json.dumps(d["error"])
                return
            a.id = a.id or d.get("id")
            for choice in d.get("choices") or []:
                take_delta(a, d, choice["delta"], now)

    return ask(base + "/v1/chat/completions", body, request_id, take)


def take_delta(a: Answer, event: dict, delta: dict, now: int) -> None:
    """vLLM-Omni says the modality and puts audio into content; SGLang-Omni has a field for it."""
    data = (delta.get("audio") or {}).get("data")
    content = delta.get("content")
    if event.get("modality") == "audio":
        data, content = content, None
    if data:
        a.first_audio_ns = a.first_audio_ns or now
        a.audio_bytes += len(base64.b64decode(data))
    if content:
        a.first_text_ns = a.first_text_ns or now
        a.text += content


def speech(base: str, model: str, request_id: str, text: str = "Say hello to the whole world.") -> Answer:
    """Streamed speech as raw PCM. vLLM-Omni ignores the request id."""
    body = {"model": model, "input": text, "voice": "vivian", "stream": True, "stream_format": "audio", "response_format": "pcm"}

    def take(a: Answer, r) -> None:
        for data in r.iter_bytes():
            a.first_audio_ns = a.first_audio_ns or time.monotonic_ns()
            a.audio_bytes += len(data)

    return ask(base + "/v1/audio/speech", body, request_id, take)


def ask(url: str, body: dict, request_id: str, take) -> Answer:
    import httpx

    a = Answer(request_id, start_ns=time.monotonic_ns())
    try:
        with httpx.stream("POST", url, json=body, headers={"X-Request-Id": request_id}, timeout=180) as r:
            a.status = r.status_code
            if r.status_code == 200:
                take(a, r)
            else:
                a.error = r.read().decode(errors="replace")[:500]
    except httpx.HTTPError as e:
        a.error = f"{type(e).__name__}: {e}"
    a.end_ns = time.monotonic_ns()
    return a


def ask_many(one, ids: list[str], concurrency: int) -> list[Answer]:
    """`one(request_id)` for each, so many at once; answers in the order of the ids."""
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(one, ids))


def some_ids(n: int) -> list[str]:
    """Request ids of different form, each once."""
    return [(f"omt-{i}", f"omt_{i}_0", f"omt.{i}_1_{i}")[i % 3] for i in range(n)]


# --- the command line


@contextlib.contextmanager
def observed(command: str | None, root: int):
    """Runs the command beside what is in the block; it is ready when it has printed a line."""
    if not command:
        yield
        return
    p = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
                         env={**os.environ, "OMNITAP_ROOT_PID": str(root)}, preexec_fn=servers.die_with_parent)
    try:
        if not p.stdout.readline():
            raise SystemExit(f"the observer ended with {p.wait(10)} before it printed a line")
        threading.Thread(target=lambda: [None for _ in p.stdout], daemon=True).start()
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(20)
        end_group(p)


def run_harness(a: argparse.Namespace, out: pathlib.Path) -> dict:
    h = Harness(a.run, a.scenario or make_scenario.many(a.run, a.requests, a.concurrency, faults=a.faults), out)
    try:
        pids = h.wait_ready()
        with observed(a.observe, pids["api"]):
            t0 = time.monotonic()
            h.release()
            h.wait_done()
            took = time.monotonic() - t0
        h.finish()
    finally:
        h.stop()
    return {"pids": pids, "seconds": round(took, 1), "transfers": len(h.expected()), **h.requests()}


def run_server(a: argparse.Namespace, out: pathlib.Path) -> dict:
    t0 = time.monotonic()
    s = ToyServer(out) if a.serve == "toy" else CpuServer(a.serve, out)
    started = time.monotonic() - t0
    try:
        base = f"http://127.0.0.1:{s.port}"
        model = "toy-omni" if a.serve == "toy" else f"tiny-{a.serve}"
        one = speech if a.serve == "tts" else chat
        with observed(a.observe, s.proc.p.pid):
            t0 = time.monotonic()
            answers = ask_many(lambda rid: one(base, model, rid), some_ids(a.requests), a.concurrency)
            took = time.monotonic() - t0
    finally:
        s.stop()
    failed = [x for x in answers if x.error or x.status != 200]
    (out / "answers.jsonl").write_text("".join(json.dumps(asdict(x)) + "\n" for x in answers))
    return {"started_seconds": round(started, 1), "seconds": round(took, 1), "requests": len(answers), "failed": len(failed),
            "with_audio": sum(x.audio_bytes > 0 for x in answers)}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", choices=HARNESSES)
    what.add_argument("--serve", choices=["omni", "tts", "toy"])
    p.add_argument("--scenario", type=pathlib.Path)
    p.add_argument("--faults", action="store_true", help="slow steps, repeated ids, a segment left over, one nobody reads")
    p.add_argument("--requests", type=int, default=4)
    p.add_argument("--concurrency", type=int, default=2)
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--observe", metavar="COMMAND")
    a = p.parse_args()
    out = a.out or pathlib.Path(tempfile.mkdtemp(prefix="stages-"))
    out.mkdir(parents=True, exist_ok=True)
    result = run_harness(a, out) if a.run else run_server(a, out)
    print(json.dumps({**result, "out": str(out)}))
    return 1 if a.serve and result["failed"] else 0  # in a harness a fault may be meant to fail a request


if __name__ == "__main__":
    sys.exit(main())
