"""Writes a scenario of many small requests.

    python3 make_scenario.py --server vllm-omni|sglang-omni|mooncake --requests 1000 --concurrency 32 [--seed 1] [--faults] >FILE

The same arguments give the same file. Ids differ in form: some hold `_` and digits, so that only a reader that splits
a segment's name from its end gets them right. Sizes and chunk counts differ from request to request.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import uuid

SHAPES = {  # forms of ids, {u}: 32 hex digits, {n}: the request's number
    "vllm-omni": ["chatcmpl-{u}", "chatcmpl-omt_{n}", "chatcmpl-{n}_0_1", "speech-{u:.16}", "rt_{n}_{u:.8}", "{n}"],
    "mooncake": ["chatcmpl-{u}", "chatcmpl-omt_{n}", "chatcmpl-{n}_0_1"],
    "sglang-omni": ["{uuid}", "speech-{uuid}", "omt_{n}_0_{u:.8}", "chat-{n}"],
}


def many(server: str, requests: int, concurrency: int, seed: int = 1, faults: bool = False) -> dict:
    """The scenario: 3 thinker chunks a request, fewer or more now and then; 1 or 2 talker chunks; a step is 1 or 2 ms."""
    rng = random.Random(seed)
    all_of_it = {"name": f"many-{requests}", "server": server, "seed": seed, "concurrency": concurrency, "faults": [],
                 "requests": [request(rng, SHAPES[server], n) for n in range(requests)]}
    if faults:
        add_faults(all_of_it, rng)
    return all_of_it


def add_faults(scenario: dict, rng: random.Random) -> None:
    """Every 20th request is slow in a stage; one in 20 has its id used again; one leaves a chunk unread; one name is taken."""
    requests = scenario["requests"]
    slow = [{"kind": "slow", "stage": rng.randrange(2), "request": r["id"], "chunk": 1, "ms": 40} for r in requests[3::20]]
    scenario["faults"] = slow + [{"kind": "stale", "stage": 0, "request": requests[-1]["id"], "chunk": 1, "bytes": 777}]
    if scenario["server"] != "sglang-omni":
        middle = requests[len(requests) // 2]["id"]
        scenario["faults"].append({"kind": "orphan", "stage": 0, "request": middle, "chunk": 90, "bytes": 5000})
    if scenario["server"] != "mooncake":  # its pair takes each request once
        for r in requests[7::20]:
            r["repeat"] = 2


def request(rng: random.Random, shapes: list[str], n: int) -> dict:
    u = uuid.UUID(int=rng.getrandbits(128), version=4)
    return {
        "id": rng.choice(shapes).format(u=u.hex, uuid=u, n=n),
        "timeout_s": 60,
        "thinker": {"chunks": rng.choice([2, 3, 3, 3, 4]), "ms": 1, "bytes": 2 * rng.randrange(1024, 16384),
                    "prefill_bytes": rng.choice([20000, 65536, 131072])},
        "talker": {"ms": 1, "group": 2, "bytes": 16 * rng.randrange(16, 1500)},
        "code2wav": {"ms": 2, "samples": rng.choice([480, 1920, 4800])},
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--server", choices=SHAPES, required=True)
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--concurrency", type=int, default=32)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--faults", action="store_true")
    a = p.parse_args()
    json.dump(many(a.server, a.requests, a.concurrency, a.seed, a.faults), sys.stdout)
    print()


if __name__ == "__main__":
    main()
