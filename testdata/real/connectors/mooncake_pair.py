"""vLLM-Omni's MooncakeTransferEngineConnector over TCP between two processes (stage 0 sends, stage 1 asks).

Real: the connector, its ZMQ side channel, Mooncake's transfer engine with protocol tcp. Needs libibverbs1
and libnuma1 installed even for TCP. Memory pinning is skipped (no CUDA here).

Requests run one after another.

    PYTHON mooncake_pair.py SCENARIO.json OUTDIR [--hold]      PYTHON: environment `connectors` of ../install.sh
"""

import multiprocessing
import os
import socket
import time

from common import Gate, Scenario, Truth, arguments, compute, die_with_parent, maybe_exit, run, wait_until_ready

NAMES = ["thinker", "talker"]


def connector(role, port):
    import torch

    torch.Tensor.pin_memory = lambda self, *a, **k: self
    from vllm_omni.distributed.omni_connectors.connectors.mooncake_transfer_engine_connector import (
        MooncakeTransferEngineConnector as C,
    )

    return C(
        dict(
            host="127.0.0.1",
            zmq_port=port,
            protocol="tcp",
            memory_pool_size=64 << 20,
            memory_pool_device="cpu",
            role=role,
            sender_host="127.0.0.1",
            sender_zmq_port=port,
            stage_id=0 if role == "sender" else 1,
        )
    )


class TimedEngine:
    """The transfer engine, with ground truth around the call that moves the bytes."""

    def __init__(self, engine, truth):
        self.engine, self.truth = engine, truth

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def batch_transfer_sync_write(self, peer, src, dst, lengths):
        self.truth.log("transfer_start", None, None, sum(lengths), peer)
        r = self.engine.batch_transfer_sync_write(peer, src, dst, lengths)
        self.truth.log("transfer_end", None, None, sum(lengths), peer, ret=r)
        return r


def stage_main(stage, scenario_path, outdir, port, go, stop):
    import torch
    from vllm.utils.system_utils import set_process_title

    die_with_parent()
    set_process_title(f"StageEngineCoreProc_stage{stage}_replica0_DP0")
    truth, sc = Truth(outdir, NAMES[stage]), Scenario(scenario_path)
    c = connector("sender" if stage == 0 else "receiver", port)
    c.engine = TimedEngine(c.engine, truth)
    truth.log("ready", rpc_port=c.rpc_port)
    go.wait()
    for r in sc.requests:
        rid, p = r["id"], r["thinker"]
        for n in range(p["chunks"]):
            key, nb = f"{rid}_0_{n}", p["bytes"] if n else p.get("prefill_bytes", p["bytes"])
            if stage == 0:
                compute(truth, sc, 0, rid, n, p["ms"])
                maybe_exit(truth, sc, 0, rid, n)
                truth.log("put_start", rid, n, nb, key)
                ok, size, _ = c.put("0", "1", key, {"hidden": torch.zeros(nb // 2, dtype=torch.bfloat16)})
                truth.log("put_end", rid, n, size, key, ok=ok)
            else:
                misses, first = 0, time.monotonic_ns()
                while True:
                    t = time.monotonic_ns()
                    got = c.get("0", "1", key)
                    if got is not None:
                        break
                    misses += 1
                    if time.monotonic_ns() - first > 5e9:
                        truth.log("timeout", rid, n, None, key)
                        break
                    time.sleep(0.001)
                if got is None:
                    break
                truth.log("get_start", rid, n, got[1], key, mono_ns=t, misses=misses, first_poll_ns=first)
                truth.log("get_end", rid, n, got[1], key)
                compute(truth, sc, 1, rid, n, r["talker"]["ms"])
    truth.log("idle")
    stop.wait()
    truth.log("exit")
    os._exit(0)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def serve(scenario_path, outdir, gate):
    ctx = multiprocessing.get_context("spawn")
    truth, port = Truth(outdir, "api"), free_port()
    go, stop = ctx.Event(), ctx.Event()
    stages = {}
    for i, name in enumerate(NAMES):
        stages[name] = ctx.Process(target=stage_main, args=(i, scenario_path, outdir, port, go, stop), daemon=True)
        stages[name].start()
        truth.log("stage_started", key=name, child=stages[name].pid)
    pids = wait_until_ready(outdir, stages)
    if gate.pass_through("ready", pids=pids):
        go.set()
        wait_until_ready(outdir, stages, 300, "idle")
        gate.pass_through("done")
    stop.set()
    for name, p in stages.items():
        p.join(10)
        truth.log("stage_exited", key=name, status=p.exitcode)


if __name__ == "__main__":
    args = arguments(__doc__)
    run(serve(args.scenario, args.out, Gate(args.hold)))
