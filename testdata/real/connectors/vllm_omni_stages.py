"""Three vLLM-Omni stage processes joined by the server's own code.

Real: process start and titles, StageEngineCoreClient (the orchestrator's ZMQ client),
EngineCoreProc's two socket threads, OmniChunkTransferAdapter with its two threads,
SharedMemoryConnector, every message encoding. Stand-ins: the scheduler loop and the model step.

    PYTHON vllm_omni_stages.py SCENARIO.json OUTDIR [--hold]      PYTHON: environment `connectors` of ../install.sh
"""

import asyncio
import os
import queue
import signal
import threading
import time
from types import SimpleNamespace

import torch

from common import Gate, Scenario, Truth, arguments, compute, maybe_exit, run, wait_until_ready

NAMES = ["thinker", "talker", "code2wav"]


def next_stage_payload(transfer_manager, multimodal_output, request, is_finished):
    """What a model's custom_process_next_stage_input_func does: one payload from one step's output."""
    from vllm_omni.data_entry_keys import CodesStruct, HiddenStatesStruct, MetaStruct, OmniPayloadStruct

    if multimodal_output is None:
        return None
    meta = MetaStruct(request_id=request.external_req_id)
    if "hidden" in multimodal_output:
        return OmniPayloadStruct(hidden_states=HiddenStatesStruct(output=multimodal_output["hidden"]), meta=meta)
    return OmniPayloadStruct(codes=CodesStruct(audio=multimodal_output["codes"]), meta=meta)


def fake_config(stage, worker_type):
    """The few fields that the imported classes read."""
    model = SimpleNamespace(
        max_model_len=4096,
        dtype=torch.bfloat16,
        multimodal_config=None,
        worker_type=worker_type,
        stage_id=stage,
        async_chunk=True,
        stage_connector_config={"name": "SharedMemoryConnector", "extra": {"stage_id": stage}},
        custom_process_next_stage_input_func="vllm_omni_stages.next_stage_payload" if stage < 2 else None,
        omni_kv_config=None,
    )
    parallel = SimpleNamespace(
        enable_elastic_ep=False,
        data_parallel_size=1,
        data_parallel_index=0,
        data_parallel_size_local=1,
        data_parallel_rank=0,
        data_parallel_rank_local=None,
        data_parallel_external_lb=False,
        local_engines_only=False,
        world_size=1,
    )
    cache = SimpleNamespace(
        num_gpu_blocks=0, block_size=16, kv_cache_size_tokens=None, kv_cache_max_concurrency=None
    )
    return SimpleNamespace(
        model_config=model,
        parallel_config=parallel,
        cache_config=cache,
        scheduler_config=SimpleNamespace(max_num_seqs=8),
    )


def instrument(truth):
    """Ground truth around the connector: calls, and inside them the copy into and out of shared memory."""
    import vllm_omni.distributed.omni_connectors.connectors.shm_connector as m

    cls, local = m.SharedMemoryConnector, threading.local()
    put, get, write, read = cls.put, cls.get, m.shm_write_bytes, m.shm_read_bytes

    def split(key):
        rid, _, chunk = key.rsplit("_", 2)
        return rid, int(chunk)

    def t_put(self, from_stage, to_stage, put_key, data):
        rid, chunk = split(put_key)
        local.who = (rid, chunk)
        truth.log("put_start", rid, chunk, None, put_key)
        r = put(self, from_stage, to_stage, put_key, data)
        truth.log("put_end", rid, chunk, r[1], put_key, ok=r[0])
        return r

    def t_write(payload, name=None):
        truth.log("write_start", *local.who, len(payload), name)
        r = write(payload, name)
        truth.log("write_end", *local.who, len(payload), name)
        return r

    misses = {}

    def t_get(self, from_stage, to_stage, get_key, metadata=None):
        t0 = time.monotonic_ns()
        rid, chunk = split(get_key)
        local.who = (rid, chunk)
        r = get(self, from_stage, to_stage, get_key, metadata)
        if r is None:
            m = misses.setdefault(get_key, [t0, 0])
            m[1] += 1
        else:
            first, n = misses.pop(get_key, (t0, 0))
            truth.log("get_start", rid, chunk, r[1], get_key, mono_ns=t0, misses=n, first_poll_ns=first)
            truth.log("get_end", rid, chunk, r[1], get_key)
        return r

    def t_read(meta):
        truth.log("read_start", *local.who, meta["size"], meta["name"])
        r = read(meta)
        truth.log("read_end", *local.who, meta["size"], meta["name"])
        return r

    cls.put, cls.get, m.shm_write_bytes, m.shm_read_bytes = t_put, t_get, t_write, t_read


def stage_main(stage, scenario_path, outdir, input_address, output_address):
    from vllm.utils.system_utils import decorate_logs, set_process_title
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: F401  (what a stage process has loaded)
    from vllm.v1.engine import EngineCoreRequestType, FinishReason
    import vllm.v1.engine.core as core
    from vllm.v1.request import RequestStatus
    from vllm_omni.distributed.omni_connectors.transfer_adapter.chunk_transfer_adapter import OmniChunkTransferAdapter
    from vllm_omni.engine import OmniEngineCoreOutput, OmniEngineCoreOutputs, OmniEngineCoreRequest
    from vllm_omni.engine.stage_engine_core_proc import StageEngineCoreProc
    from vllm_omni.engine.stage_init_utils import set_death_signal

    set_death_signal(signal.SIGTERM)
    set_process_title(f"StageEngineCoreProc_stage{stage}_replica0_DP0")
    decorate_logs()
    core.EngineCoreRequest = OmniEngineCoreRequest
    truth, sc = Truth(outdir, NAMES[stage]), Scenario(scenario_path)
    instrument(truth)

    cfg = fake_config(stage, "generation" if stage == 2 else "ar")
    eng = object.__new__(StageEngineCoreProc)  # the real class, without its model executor
    eng.vllm_config, eng.tensor_ipc_receiver, eng.frontend_stats_publish_address = cfg, None, None
    eng.mm_receiver_cache, eng.request_block_hasher = None, None
    eng.input_queue, eng.output_queue, eng.aborts_queue = queue.Queue(), queue.Queue(), queue.Queue()
    ready = threading.Event()
    threading.Thread(
        target=eng.process_input_sockets, args=([input_address], None, (0).to_bytes(2, "little"), ready), daemon=True
    ).start()
    threading.Thread(target=eng.process_output_sockets, args=([output_address], None, 0), daemon=True).start()
    ready.wait()
    adapter = OmniChunkTransferAdapter(cfg)
    title = open("/proc/self/cmdline").read().strip("\0")
    if not title.startswith("VLLM::StageEngineCoreProc_stage"):
        raise SystemExit("no process title: setproctitle is missing")  # vLLM itself would go on without a word
    truth.log("ready", title=title)

    def output(req, chunk, tensor=None, done=False):
        out = OmniEngineCoreOutput(
            request_id=req.request_id,
            new_token_ids=[chunk],
            multimodal_output=None if tensor is None else {"audio": tensor},
            finish_reason=FinishReason.STOP if done else None,
        )
        nb = 0 if tensor is None else tensor.numel() * tensor.element_size()
        truth.log("output", req.external_req_id, chunk, nb, done=done)
        eng.output_queue.put((0, OmniEngineCoreOutputs(outputs=[out])))

    def send(req, mm, last):
        if last:
            req.status = RequestStatus.FINISHED_STOPPED
        adapter.save_async(mm, req, is_segment_finished=last)

    live = {}
    while True:
        timeout = 0.001 if live else 0.05
        try:
            kind, data = eng.input_queue.get(timeout=timeout)
        except queue.Empty:
            kind = None
        if kind == EngineCoreRequestType.ADD:
            req, _ = data
            req.num_computed_tokens = 0
            r = sc.request(req.external_req_id)
            truth.log("request_added", req.external_req_id)
            live[req.request_id] = st = SimpleNamespace(req=req, r=r, got=0, sent=0, buf=0)
            adapter.get_req_chunk.pop(req.request_id, None)
            if stage > 0:
                adapter.load_async(req)
        elif kind == EngineCoreRequestType.ABORT:
            for rid in data:
                if rid in live:
                    truth.log("request_aborted", live[rid].req.external_req_id)
                    adapter.cleanup_receiver(rid)
                    del live[rid]
        elif kind == EngineCoreRequestType.UTILITY:
            return
        for rid, st in list(live.items()):
            req, r, ext = st.req, st.r, st.req.external_req_id
            if stage == 0:  # one step a pass, as a decode loop does
                t = r["thinker"]
                compute(truth, sc, 0, ext, st.sent, t["ms"])
                maybe_exit(truth, sc, 0, ext, st.sent)
                last = st.sent == t["chunks"] - 1
                req.num_computed_tokens += 1
                nb = t["bytes"] if st.sent else t.get("prefill_bytes", t["bytes"])
                send(req, {"hidden": torch.zeros(nb // 2, dtype=torch.bfloat16)}, last)
                output(req, st.sent, done=last)
                st.sent += 1
                f = sc.fault("orphan", 0, ext)
                if last and f:  # a chunk that nobody will ask for
                    import vllm_omni.distributed.omni_connectors.connectors.shm_connector  # noqa: F401

                    adapter.connector.put("0", "1", f"{ext}_0_{f['chunk']}", {"left": torch.zeros(f["bytes"])})
                if last:
                    del live[rid]
                continue
            if rid not in adapter._finished_load_reqs:
                continue
            adapter._finished_load_reqs.discard(rid)
            chunk, st.got = st.got, st.got + 1
            maybe_exit(truth, sc, stage, ext, chunk)
            exhausted = rid in adapter.upstream_exhausted_requests
            if not exhausted:
                adapter.load_async(req)
            p = r[NAMES[stage]]
            compute(truth, sc, stage, ext, chunk, p["ms"])
            if stage == 1:
                st.buf += 1
                if st.buf == p["group"] or exhausted:
                    st.buf = 0
                    req.num_computed_tokens = st.sent + 1
                    codes = torch.zeros((max(p["bytes"] // 16, 1), 2), dtype=torch.int64)
                    send(req, {"codes": codes}, exhausted)
                    output(req, st.sent, done=exhausted)
                    st.sent += 1
            else:
                output(req, chunk, torch.zeros(p["samples"], dtype=torch.float32), done=exhausted)
            if exhausted:
                del live[rid]


def owner(name):
    """The request that a name in /dev/shm belongs to: a segment's, or its lock file's."""
    return name.removeprefix("shm_").removesuffix("_lockfile.lock").rsplit("_", 2)[0]


async def serve(scenario_path, outdir, gate):
    from vllm import SamplingParams
    from vllm.utils.network_utils import get_open_zmq_ipc_path
    from vllm.utils.system_utils import get_mp_context
    from vllm_omni.engine import OmniEngineCoreRequest
    from vllm_omni.engine.stage_engine_core_client import StageEngineCoreClientBase
    from vllm_omni.engine.stage_init_utils import StageMetadata

    truth, sc = Truth(outdir, "api"), Scenario(scenario_path)
    f = sc.fault("stale")
    if f:  # a segment left by an earlier crash under a name that will be used again
        with open(f"/dev/shm/{f['request']}_{f['stage']}_{f['chunk']}", "wb") as s:
            s.write(b"x" * f["bytes"])
        truth.log("fault_stale", f["request"], f["chunk"], f["bytes"])
    clients, procs = [], []
    for i in range(3):
        a, b = get_open_zmq_ipc_path(), get_open_zmq_ipc_path()
        p = get_mp_context().Process(
            target=stage_main, name=f"StageEngineCoreProc_stage{i}_replica0", args=(i, scenario_path, outdir, a, b)
        )
        p.start()
        procs.append(p)
        clients.append((a, b))
        truth.log("stage_started", key=NAMES[i], child=p.pid)
    for i, (a, b) in enumerate(clients):
        md = StageMetadata(i, "llm", None, False, False, [], i == 2, "audio", None, None, NAMES[i], None)
        clients[i] = await asyncio.to_thread(
            StageEngineCoreClientBase.make_async_mp_client,
            fake_config(i, "ar"),
            None,
            metadata=md,
            client_addresses={"input_address": a, "output_address": b},
        )
    done = {r["id"]: asyncio.Event() for r in sc.requests}
    internal = {}

    async def pump(i):
        while True:
            outs = await clients[i].get_output_async()
            for o in outs.outputs:
                ext = internal.get(o.request_id, o.request_id)
                n = o.new_token_ids[0] if o.new_token_ids else None
                truth.log("output_received", ext, n, from_stage=NAMES[i], done=o.finished)
                if i == 2 and o.finished:
                    done[ext].set()

    pumps = [asyncio.create_task(pump(i)) for i in range(3)]

    async def one(r, again):
        done[r["id"]].clear()
        rid = r["id"] + "-" + f"{abs(hash((r['id'], again))) & 0xFFFFFFFF:08x}"  # vLLM's random tail
        internal[rid] = r["id"]
        truth.log("submit", r["id"], internal_id=rid)
        for i in range(3):  # async chunk: later stages get a placeholder at once
            req = OmniEngineCoreRequest(
                request_id=rid,
                prompt_token_ids=list(range(16)),
                mm_features=None,
                sampling_params=SamplingParams(max_tokens=64),
                pooling_params=None,
                arrival_time=time.time(),
                lora_request=None,
                cache_salt=None,
                data_parallel_rank=None,
                external_req_id=r["id"],
            )
            truth.log("add_sent", r["id"], to_stage=NAMES[i])
            await clients[i].add_request_async(req)
        try:
            await asyncio.wait_for(done[r["id"]].wait(), r.get("timeout_s", 20))
            truth.log("done", r["id"])
        except asyncio.TimeoutError:
            truth.log("timeout", r["id"])
            for c, p in zip(clients, procs):
                if p.is_alive():
                    await c.abort_requests_async([rid])

    pids = await asyncio.to_thread(wait_until_ready, outdir, dict(zip(NAMES, procs)))
    if await asyncio.to_thread(gate.pass_through, "ready", pids=pids):
        await sc.run_all(one)
    await asyncio.sleep(0.3)
    left = sorted(n for n in os.listdir("/dev/shm") if owner(n) in sc.by_id)
    for n in left:
        truth.log("left_behind", key=n, nbytes=os.path.getsize("/dev/shm/" + n))
    await asyncio.to_thread(gate.pass_through, "done")
    for t in pumps:
        t.cancel()
    for p in procs:
        if p.is_alive():
            os.kill(p.pid, signal.SIGTERM)
    for p in procs:
        p.join(5)
        truth.log("stage_exited", key=p.name, status=p.exitcode)
        if p.is_alive():
            p.kill()
    for n in left:  # a sender's resource tracker may have been faster
        if os.path.exists("/dev/shm/" + n):
            os.unlink("/dev/shm/" + n)
    os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("TMPDIR", "/tmp")
    args = arguments(__doc__)
    run(serve(args.scenario, args.out, Gate(args.hold)))
