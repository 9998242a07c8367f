"""Starts the real servers and omnitap, reads what the engines handed out, and ends what it started.

An engine's truth is a list of Truth, one a request, in the order in which the engine took them. Nothing here compares.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field

import wire

HERE = pathlib.Path(__file__).resolve().parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """PR_SET_PDEATHSIG, run in the child: nothing outlives a driver that was killed."""
    LIBC.prctl(1, signal.SIGKILL)


def environment(name: str) -> str:
    """The python of a built environment."""
    done = subprocess.run(["bash", str(HERE / "install.sh"), "--path", name], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout.strip() + "/bin/python"


@dataclass
class Truth:
    """What an engine handed out for one request."""

    id: str
    texts: list[str] = field(default_factory=list)  # non-empty deltas
    chunks: list[bytes] = field(default_factory=list)  # s16le of each audio chunk that had samples
    rate: int = 24000
    channels: int = 1
    first_text_ns: int | None = None  # CLOCK_MONOTONIC, just before the engine let go of it
    first_audio_ns: int | None = None


class Process:
    """A child in a process group of its own with its output in a file."""

    def __init__(self, argv: list[str], log: pathlib.Path, env: dict | None = None):
        self.log = log
        self.out = open(log, "w")
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out,
                                  start_new_session=True, env={**os.environ, **(env or {})}, preexec_fn=die_with_parent)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def stop(self, seconds: float = 20) -> int | None:
        """SIGTERM, then SIGKILL to its group; returns the exit code of the first."""
        code = None
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
            try:
                code = self.p.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        if code is None:
            try:
                os.killpg(self.p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.p.wait(10)
        self.out.close()
        return code


class Server:
    """Common part: start, wait for /health, stop."""

    name = ""

    def __init__(self, python: str, argv: list[str], work: pathlib.Path):
        for last in (False, False, True):  # a port that was free a moment ago may be taken by now
            self.port = free_port()
            # without the variable sglang-omni takes another port than it was told, and says nothing
            self.proc = Process([python, *argv, "--port", str(self.port)], work / f"server-{self.port}.log",
                                {"PYTHONDONTWRITEBYTECODE": "1", "SGLANG_OMNI_STRICT_PORT": "1"})
            if self.comes_up():
                return
            self.proc.stop()
            if last:
                raise SystemExit(f"{self.name} did not come up:\n{self.proc.tail()}")

    def comes_up(self) -> bool:
        """Whether our own process answers /health in time."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self.proc.p.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                    if r.status == 200 and self.listens():
                        return True
            except OSError:
                pass
            time.sleep(0.25)
        return False

    def listens(self) -> bool:
        """Whether the port is our process's own: another test's server may answer on it."""
        want = f":{self.port:04X}"
        inodes = set()
        for name in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(name) as f:
                for line in f.readlines()[1:]:
                    field = line.split()
                    if field[1].endswith(want) and field[3] == "0A":
                        inodes.add(f"socket:[{field[9]}]")
        fds = pathlib.Path(f"/proc/{self.proc.p.pid}/fd")
        return any(os.readlink(fd) in inodes for fd in list(fds.iterdir()) if os.path.islink(fd))

    def stop(self) -> None:
        self.proc.stop()


class Coming:
    """A server that is being started. Its thread lives on: a child dies with the thread that started it."""

    def __init__(self, make):
        self.make, self.found, self.begun = make, queue.Queue(), False

    def start(self) -> None:
        if not self.begun:
            self.begun = True
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.found.put(self.make())
        except SystemExit as e:
            self.found.put(e)
        threading.Event().wait()

    def get(self) -> Server:
        got = self.found.get()
        if isinstance(got, SystemExit):
            raise got
        return got


class VllmOmni(Server):
    name = "vllm-omni"

    def __init__(self, python: str, work: pathlib.Path, options: tuple = ()):
        self.seen = 0
        super().__init__(python, [str(HERE / "vllm-omni" / "serve_fake_engine.py"), *options], work)

    def truth(self) -> list[Truth]:
        """Of the requests since the last call."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/fake/requests", timeout=20) as r:
            log = json.load(r)
        new, self.seen = log[self.seen:], len(log)
        return [self.one(r) for r in new]

    def next_scripts(self, scripts: list[dict]) -> None:
        """What the coming requests get that carry no text."""
        body = json.dumps({"next": scripts}).encode()
        q = urllib.request.Request(f"http://127.0.0.1:{self.port}/fake/script", body, {"content-type": "application/json"})
        with urllib.request.urlopen(q, timeout=20):
            pass

    @staticmethod
    def one(r: dict) -> Truth:
        sys.path.insert(0, str(HERE / "vllm-omni"))
        import serve_fake_engine as fake  # its top level is plain Python; the audio is made again from the script

        s, n = r["script"], 0
        audio = [a for _, a in fake.FakeEngine.plan(None, s, False, True)[1]]
        handed = [o for o in r["outputs"] if o["type"] == "audio"]
        if len(handed) == 1 and handed[0]["samples"] == sum(len(a) for a in audio if a):
            audio = [[x for a in audio if a for x in a]]  # one final output
        t = Truth(r["internal_id"], rate=24000 if s["omit_sr"] else s["rate"], channels=s["channels"])
        for o in r["outputs"]:
            if o["type"] == "text":
                if o["text"]:
                    t.texts.append(o["text"])
                    t.first_text_ns = t.first_text_ns or o["t_ns"]
                continue
            if o["samples"]:
                pcm = fake.s16le(audio[n], s["channels"])
                assert wire.sha256(pcm) == o["sha256"], f"{t.id}: chunk {n} cannot be made again"
                t.chunks.append(pcm)
                t.first_audio_ns = t.first_audio_ns or o["t_ns"]
            n += 1
        return t


class SglangOmni(Server):
    name = "sglang-omni"

    def __init__(self, python: str, work: pathlib.Path, options: tuple = ()):
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="stages-", dir=work))
        self.since = 0
        super().__init__(python, [str(HERE / "sglang-omni" / "serve_toy.py"), "--log-dir", str(self.logs), *options], work)

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.logs, ignore_errors=True)

    def truth(self) -> list[Truth]:
        """Of the requests since the last call, in the order in which preprocessing took them."""
        time.sleep(0.2)
        lines = []
        for path in self.logs.glob("stage_*.jsonl"):
            lines += [json.loads(x) for x in path.read_text().splitlines() if x.endswith("}")]
        lines = sorted((x for x in lines if x["mono_ns"] > self.since), key=lambda x: x["mono_ns"])
        self.since = max([self.since, *(x["mono_ns"] for x in lines)])
        out: dict[str, Truth] = {}
        specs: dict[str, list] = {}
        for x in lines:
            rid, stage, event = x["request_id"], x["stage"], x["event"]
            if stage == "duplex":  # its ids are unique within a session only
                rid = f"{x['session']}/{rid}"
            if stage == "preprocessing" and event == "start" or stage == "duplex" and rid not in out:
                out[rid], specs[rid] = Truth(rid), []
            t = out.get(rid)
            if t is None:
                continue
            if stage in ("decode", "duplex") and event == "emit" and x.get("text"):
                t.texts.append(x["text"])
                t.first_text_ns = t.first_text_ns or x["mono_ns"]
            if stage == "code2wav" and event in ("emit", "final") or stage == "duplex" and "samples" in x:
                specs[rid].append(x)
        for rid, audio in specs.items():
            self.fill_audio(out[rid], audio)
        return list(out.values())

    @staticmethod
    def fill_audio(t: Truth, audio: list[dict]) -> None:
        """The toy's samples are a ramp; which base and leading silence, the hashes of its log say."""
        chunks = [x for x in audio if x["event"] == "emit"] or [x for x in audio if x["samples"]]
        if not chunks:
            return
        t.rate, t.channels, t.first_audio_ns = chunks[0]["rate"], chunks[0]["channels"], chunks[0]["mono_ns"]
        base, silence = ramp_start(chunks, t.channels)
        at = 0
        for x in chunks:
            pcm = ramp(base, silence, at, x["samples"], t.channels)
            assert wire.sha256(pcm) == x["sha256_pcm"], f"{t.id}: a chunk cannot be made again"
            t.chunks.append(pcm)
            at += x["samples"]


RAMPS = [(0, 0), (5000, 0), (0, 13230), (9600, 0)]  # (base, leading silence) that the scenarios use


def ramp_start(chunks: list[dict], channels: int) -> tuple[int, int]:
    """The pair under which every chunk comes out: the first may be silent in more than one."""
    for base, silence in RAMPS:
        at = 0
        for x in chunks:
            if wire.sha256(ramp(base, silence, at, x["samples"], channels)) != x["sha256_pcm"]:
                break
            at += x["samples"]
        else:
            return base, silence
    raise AssertionError("the toy's audio is none of the known ramps")


def ramp(base: int, silence: int, start: int, count: int, channels: int) -> bytes:
    a = array.array("h", (0 if k < silence else (base + 5000 * c + k) % 20001 - 10000
                          for k in range(start, start + count) for c in range(channels)))
    if sys.byteorder == "big":
        a.byteswap()
    return a.tobytes()


class Omnitap:
    """`omnitap serve` before a server: its address, and the records it wrote."""

    def __init__(self, binary: str, upstream: int, work: pathlib.Path, extra: list[str]):
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=work))
        argv = [binary, "serve", "--upstream", f"http://127.0.0.1:{upstream}", "--listen", "127.0.0.1:0",
                "--out", str(self.out), "--log", "off", "--correlation", "passive", *extra]
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, start_new_session=True, preexec_fn=die_with_parent)
        self.lines: list[str] = []
        found: queue.Queue = queue.Queue()
        threading.Thread(target=self._read, args=(found,), daemon=True).start()
        try:
            self.port = found.get(timeout=20)
        except queue.Empty:
            self.stop()
            raise SystemExit(f"omnitap did not say that it listens: {self.lines[-5:]}") from None
        self.taken = self.told = 0

    def _read(self, found: queue.Queue) -> None:
        for line in self.p.stderr:
            self.lines.append(line.rstrip())
            if m := re.match(r"listening on \S*:(\d+)", line):
                found.put(int(m[1]))

    def records(self, count: int, seconds: float = 10) -> list[dict]:
        """The records since the last call, in the order of t_in; waits for this many, and a little for more."""
        deadline = time.monotonic() + seconds
        while len(new := self._all()[self.taken:]) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)
        new = self._all()[self.taken:]
        self.taken += len(new)
        return sorted(new, key=lambda r: (r.get("points") or {}).get("t_in") or 0)

    def sessions(self, count: int, seconds: float = 10) -> list[dict]:
        """The lines of sessions since the last call; waits for this many, and a little for more."""
        deadline = time.monotonic() + seconds
        while len(self._all("sessions.jsonl")) - self.told < count and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)
        new = self._all("sessions.jsonl")[self.told:]
        self.told += len(new)
        return new

    def _all(self, name: str = "requests.jsonl") -> list[dict]:
        path = self.out / name
        if not path.exists():
            return []
        text = path.read_text()
        return [json.loads(x) for x in text[:text.rfind("\n") + 1].splitlines()]

    def stop(self) -> int | None:
        code = None
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
            try:
                code = self.p.wait(15)
            except subprocess.TimeoutExpired:
                pass
        if code is None:
            try:
                os.killpg(self.p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.p.wait(10)
        return code


SERVERS = {"vllm-omni": VllmOmni, "sglang-omni": SglangOmni}
