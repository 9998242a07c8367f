"""Three SGLang-Omni stage processes joined by the server's own code.

Real: Stage, CommEngine, CommRouter, ShmRelay, StageControlPlane, Coordinator, all messages, spawned
processes with the server's names (which stay inside Python: no process title is set).
Stand-ins: the scheduler behind the stage's inbox and outbox, the model step, and the package sglang
(../sglang-omni/stubs.py), of which these classes only ask for the platform.

    PYTHON sglang_omni_stages.py SCENARIO.json OUTDIR [--hold]      PYTHON: environment `sglang-omni` of ../install.sh
"""

import asyncio
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time

from common import Gate, Scenario, Truth, arguments, compute, die_with_parent, maybe_exit, run, wait_until_ready

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sglang-omni"))

import stubs

stubs.install()  # also in every stage process: multiprocessing imports this module there first

NAMES = ["thinker", "talker_ar", "code2wav"]
SECTION = {"thinker": "thinker", "talker_ar": "talker", "code2wav": "code2wav"}


def instrument(truth):
    import sglang_omni.pipeline.control_plane as cp
    from sglang_omni.relay import shm

    pack, unpack = cp.serialize_message, cp.deserialize_message

    def facts(msg, data):
        d = msg.to_dict()
        ref = d.get("data_ref") or {}
        info = (ref.get("buffer") or {}).get("info") or {}
        t = info.get("transfer_info") or {}
        return dict(
            request_id=d.get("request_id"),
            chunk=d.get("chunk_id"),
            nbytes=t.get("size"),
            key=t.get("shm_name"),
            type=d["type"],
            from_stage=d.get("from_stage"),
            to_stage=d.get("to_stage"),
            object_id=d.get("object_id") or ref.get("object_id"),
            ref_type=ref.get("_type"),
            is_done=d.get("is_done"),
            message_bytes=len(data),
        )

    def t_pack(msg):
        data = pack(msg)
        truth.log("msg_send", **facts(msg, data))
        return data

    def t_unpack(data):
        t = time.monotonic_ns()
        msg = unpack(data)
        truth.log("msg_recv", mono_ns=t, **facts(msg, data))
        return msg

    cp.serialize_message, cp.deserialize_message = t_pack, t_unpack
    put, wait = shm.ShmRelay.put_async, shm.ShmGetOperation.wait_for_completion

    async def t_put(self, tensor, request_id=None, dst_rank=None, receiver_id=None):
        t = time.monotonic_ns()
        op = await put(self, tensor, request_id, dst_rank, receiver_id)
        i = op.metadata["transfer_info"]
        rid = i["req_id"].split(":")[0]
        truth.log("put_start", rid, None, i["size"], i["shm_name"], mono_ns=t, object_id=i["req_id"])
        truth.log("put_end", rid, None, i["size"], i["shm_name"], object_id=i["req_id"])
        return op

    async def t_wait(self, timeout=30.0):
        i = self.transfer_info
        rid = i["req_id"].split(":")[0]
        truth.log("get_start", rid, None, i["size"], i["shm_name"], object_id=i["req_id"])
        await wait(self, timeout)
        truth.log("get_end", rid, None, i["size"], i["shm_name"], object_id=i["req_id"])

    shm.ShmRelay.put_async, shm.ShmGetOperation.wait_for_completion = t_put, t_wait


class FakeScheduler:
    """Same inbox and outbox as the server's schedulers."""

    requires_tp_work_fanout = True

    def __init__(self, name, sc, truth):
        self.name, self.sc, self.truth = name, sc, truth
        self.inbox, self.outbox = queue.Queue(), queue.Queue()
        self.live = {}

    def warm_up_serving_thread(self):
        pass

    def stop(self):
        from sglang_omni.scheduling.message import IncomingMessage

        self.inbox.put(IncomingMessage("", "wakeup"))

    def abort(self, request_id):
        self.live.pop(request_id, None)

    def start(self):
        import torch
        from sglang_omni.scheduling.message import OutgoingMessage

        idx = NAMES.index(self.name)
        nxt = NAMES[idx + 1] if idx < 2 else None
        while True:
            m = self.inbox.get()
            if m.type == "wakeup":
                return
            rid, sc, truth = m.request_id, self.sc, self.truth
            p = sc.request(rid)[SECTION[self.name]]
            st = self.live.setdefault(rid, {"got": 0, "sent": 0, "buf": 0, "payload": None, "eos": False})
            if m.type == "new_request":
                st["payload"] = m.data
                truth.log("request_added", rid)
                if idx == 0:
                    for n in range(p["chunks"]):
                        compute(truth, sc, 0, rid, n, p["ms"])
                        maybe_exit(truth, sc, 0, rid, n)
                        nb = p["bytes"] if n else p.get("prefill_bytes", p["bytes"])
                        t = torch.zeros(nb // 2, dtype=torch.bfloat16)
                        truth.log("stream_out", rid, n, nb)
                        self.outbox.put(OutgoingMessage(rid, "stream", t, target=nxt))
                    st["eos"] = True
            elif m.type == "stream_chunk":
                n, st["got"] = st["got"], st["got"] + 1
                truth.log("stream_in", rid, m.data.chunk_id, m.data.data.nbytes)
                maybe_exit(truth, sc, idx, rid, n)
                compute(truth, sc, idx, rid, n, p["ms"])
                if idx == 1:
                    st["buf"] += 1
                    if st["buf"] == p["group"]:
                        self.emit_codes(st, rid, p, nxt)
                else:
                    audio = torch.zeros(p["samples"], dtype=torch.float32).numpy().tobytes()
                    truth.log("stream_out", rid, n, len(audio))
                    self.outbox.put(OutgoingMessage(rid, "stream", {"audio": audio, "modality": "audio"}))
            elif m.type == "stream_done":
                if idx == 1 and st["buf"]:
                    self.emit_codes(st, rid, p, nxt)
                st["eos"] = True
            if st["eos"] and st["payload"] is not None:
                truth.log("result_out", rid)
                self.outbox.put(OutgoingMessage(rid, "result", st["payload"]))
                self.live.pop(rid, None)

    def emit_codes(self, st, rid, p, nxt):
        import torch
        from sglang_omni.scheduling.message import OutgoingMessage

        st["buf"] = 0
        t = torch.zeros(p["bytes"] // 8, dtype=torch.int64)
        self.truth.log("stream_out", rid, st["sent"], t.nbytes)
        self.outbox.put(OutgoingMessage(rid, "stream", t, target=nxt))
        st["sent"] += 1


def stage_main(name, scenario_path, outdir, ends):
    from sglang_omni.pipeline.control_plane import StageControlPlane
    from sglang_omni.pipeline.stage.runtime import Stage
    from sglang_omni.pipeline.stage.stream_queue import StreamQueue

    die_with_parent()
    truth, sc = Truth(outdir, name), Scenario(scenario_path)
    instrument(truth)
    i = NAMES.index(name)
    nxt = NAMES[i + 1] if i < 2 else None

    async def main():
        stage = Stage(
            name=name,
            role="single",
            get_next=lambda rid, out: nxt,
            gpu_id=0,  # on a CPU platform every stage counts as one on "the device"; the edge is then shm
            endpoints={n: ends[f"stage_{n}"] for n in NAMES},
            control_plane=StageControlPlane(name, ends[f"stage_{name}"], ends["completion"], ends["abort"]),
            rank_endpoints={n: (ends[f"comm_{n}_rank0"],) for n in NAMES},
            comm_config={"credits": sc.d.get("credits", 2), "slot_size_mb": 64},
            scheduler=FakeScheduler(name, sc, truth),
            stream_targets=[nxt] if nxt else None,
            gpu_stage_names=set(NAMES),
            allow_child_processes=True,  # keeps the stage from pinning a CUDA device
            get_stream_done_targets=(lambda rid, out: nxt) if nxt else None,
            can_accept_stream_before_payload=i > 0,
            is_terminal=nxt is None,
        )
        if i > 0:
            stage.stream_queue = StreamQueue()
        truth.log("ready", title=open("/proc/self/cmdline").read().strip("\0").replace("\0", " "))
        await stage.run()

    asyncio.run(main())
    os._exit(0)


async def serve(scenario_path, outdir, gate):
    from sglang_omni.pipeline.coordinator import Coordinator
    from sglang_omni.proto.request import OmniRequest

    truth, sc = Truth(outdir, "api"), Scenario(scenario_path)
    instrument(truth)
    base = tempfile.mkdtemp(prefix="qwen3-omni-", dir="/tmp")
    ends = {"completion": f"ipc://{base}/completion.sock", "abort": f"ipc://{base}/abort.sock"}
    for n in NAMES:
        ends[f"stage_{n}"] = f"ipc://{base}/stage_{n}.sock"
        ends[f"comm_{n}_rank0"] = f"ipc://{base}/comm_{n}_rank0.sock"
    co = Coordinator(ends["completion"], ends["abort"], "thinker", terminal_stages=["code2wav"])
    await co.start()
    ctx = multiprocessing.get_context("spawn")
    procs = []
    for n in NAMES:
        p = ctx.Process(target=stage_main, name=f"stage-{n}", args=(n, scenario_path, outdir, ends), daemon=True)
        p.start()
        procs.append(p)
        truth.log("stage_started", key=n, child=p.pid)
        co.register_stage(n, ends[f"stage_{n}"])
    loop = asyncio.create_task(co.run_completion_loop())
    for n in NAMES:
        while not os.path.exists(f"{base}/stage_{n}.sock"):
            await asyncio.sleep(0.05)
    pids = await asyncio.to_thread(wait_until_ready, outdir, dict(zip(NAMES, procs)))

    async def one(r, again):
        truth.log("submit", r["id"])
        try:
            async with asyncio.timeout(r.get("timeout_s", 20)):
                async for m in co.stream(r["id"], OmniRequest(inputs={"text": "hello"})):
                    truth.log("output_received", r["id"], getattr(m, "chunk_id", None), from_stage=m.from_stage)
            truth.log("done", r["id"])
        except Exception as e:
            truth.log("failed", r["id"], error=type(e).__name__)

    f, stale = sc.fault("stale"), []
    if f:
        with open(f"/dev/shm/psm_{0xfeed0000 + f['chunk']:08x}", "wb") as s:
            s.write(b"x" * f["bytes"])
        truth.log("fault_stale", f["request"], f["chunk"], f["bytes"], s.name)
        stale = [os.path.basename(s.name)]
    before = set(os.listdir("/dev/shm"))
    if await asyncio.to_thread(gate.pass_through, "ready", pids=pids):
        await sc.run_all(one)
    await asyncio.sleep(0.3)
    left = sorted(n for n in set(os.listdir("/dev/shm")) - before if n.startswith("psm_"))
    for n in left:
        truth.log("left_behind", key=n, nbytes=os.path.getsize("/dev/shm/" + n))
    await asyncio.to_thread(gate.pass_through, "done")
    loop.cancel()
    await co.shutdown_stages(NAMES)
    for p in procs:
        await asyncio.to_thread(p.join, 5)
        if p.is_alive():
            p.kill()
            p.join()
        truth.log("stage_exited", key=p.name, status=p.exitcode)
    for n in left + stale:
        if os.path.exists("/dev/shm/" + n):
            os.unlink("/dev/shm/" + n)
    shutil.rmtree(base, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    args = arguments(__doc__)
    run(serve(args.scenario, args.out, Gate(args.hold)))
