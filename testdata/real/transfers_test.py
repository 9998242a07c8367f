"""The comparison itself: the truth agrees with itself, and with one thing changed it does not.

    python3 testdata/real/transfers_test.py
"""

import copy
import json
import pathlib
import random
import sys
import unittest

sys.dont_write_bytecode = True

import transfers

SETS = pathlib.Path(__file__).resolve().parent.parent / "stages"
WITH_TRUTH = {"vo-basic": 16, "vo-faults": 25, "so-basic": 20, "mc-tcp": 9}


def truth_of(name: str) -> list[dict]:
    with open(SETS / name / "expected.json") as f:
        return transfers.from_expected(json.load(f))


def lines_of(truth: list[dict]) -> list[dict]:
    """What a faultless join would print."""
    keys = ["transport", "request", "from", "to", "chunk", "bytes", "key", *transfers.TIMES, "misses", "match"]
    return [{**{k: t.get(k) for k in keys}, "unread": t.get("unread", False), "confidence": 1.0} for t in truth]


def shifted(column: str, ns: int, among=lambda t: True):
    """A mutation: one time of one line."""
    def change(lines, rng):
        t = rng.choice([t for t in lines if t[column] is not None and among(t)])
        t[column] += ns
    return change


def other(column: str, make):
    def change(lines, rng):
        t = rng.choice([t for t in lines if t[column] is not None])
        t[column] = make(t[column])
    return change


def only(among, **values):
    return lambda lines, rng: rng.choice([t for t in lines if among(t)]).update(values)


def drop(lines, rng):
    lines.remove(rng.choice(lines))


def twice(lines, rng):
    lines.append(copy.deepcopy(rng.choice(lines)))


def foreign(lines, rng):
    lines.append({**rng.choice(lines), "key": "sem.x", "request": None, "chunk": None})


def swap_requests(lines, rng):
    a = rng.choice(lines)
    b = rng.choice([t for t in lines if t["request"] != a["request"]])
    a["request"], b["request"] = b["request"], a["request"]


MUTATIONS = {
    "one is missing": drop,
    "one is there twice": twice,
    "one that is none": foreign,
    "two requests are exchanged": swap_requests,
    "request": other("request", lambda v: v + "_0"),
    "from": other("from", lambda v: "code2wav"),
    "to": other("to", lambda v: "thinker"),
    "chunk": other("chunk", lambda v: v + 1),
    "bytes": other("bytes", lambda v: v - 1),
    "bytes are rounded to pages": other("bytes", lambda v: (v // 4096 + 1) * 4096),
    "key": other("key", lambda v: v + "0"),
    "match": other("match", lambda v: "window"),
    "transport": other("transport", lambda v: "pipe"),
    "confidence is none": other("confidence", lambda v: None),
    "confidence is over 1": other("confidence", lambda v: 1.5),
    "tx_end is absent": other("tx_end_ns", lambda v: None),
    "rx_start is absent": other("rx_start_ns", lambda v: None),
    "tx_end is 21 ms late": shifted("tx_end_ns", 21_000_000),
    "rx_start is 21 ms early": shifted("rx_start_ns", -21_000_000),
}
SHM_OF_VLLM = {
    "tx_start is 21 ms late": shifted("tx_start_ns", 21_000_000),
    "rx_end is 21 ms late": shifted("rx_end_ns", 21_000_000),
    "wait_start is 21 ms late": shifted("wait_start_ns", 21_000_000),
    "wait_start is absent": only(lambda t: (t["misses"] or 0) > 1, wait_start_ns=None),
    "wait_start without a miss": only(lambda t: t["misses"] == 0, wait_start_ns=1),
    "misses are one less": other("misses", lambda v: v - 1),
    "misses are one more": other("misses", lambda v: v + 1),
    "a read one is unread": only(lambda t: not t["unread"], unread=True),
}


class Compare(unittest.TestCase):
    def test_the_truth_agrees_with_itself(self):
        for name, count in WITH_TRUTH.items():
            with self.subTest(name):
                truth = truth_of(name)
                self.assertEqual(len(truth), count)
                lines = lines_of(truth)
                random.Random(1).shuffle(lines)
                report = transfers.compare(lines, truth)
                self.assertEqual(report.failed, [])
                self.assertGreater(report.passed, 8 * count)

    def test_ground_truth_gives_the_recorded_expectation(self):
        for name in WITH_TRUTH:
            with self.subTest(name):
                truth = truth_of(name)
                log = sorted(transfers.read_lines(str(SETS / name / "truth.jsonl.gz")), key=lambda e: e["mono_ns"])
                self.assertEqual(lines_of(transfers.expected(log)), lines_of(sorted(truth, key=transfers.begin)))

    def test_every_change_is_seen(self):
        for name in WITH_TRUTH:
            more = SHM_OF_VLLM if name.startswith("vo-") else {}
            for what, change in {**MUTATIONS, **more}.items():
                for seed in range(5):
                    with self.subTest(name, what=what, seed=seed):
                        truth = truth_of(name)
                        lines = lines_of(truth)
                        change(lines, random.Random(seed))
                        self.assertNotEqual(transfers.compare(lines, truth).failed, [])

    def test_a_shift_of_all_is_seen(self):
        for name in WITH_TRUTH:
            with self.subTest(name):
                truth = truth_of(name)
                lines = lines_of(truth)
                for t in lines:
                    if t["tx_end_ns"] is not None:
                        t["tx_end_ns"] += 1_300_000
                self.assertNotEqual(transfers.compare(lines, truth).failed, [])

    def test_an_empty_segment_opened_is_a_miss_in_the_truth(self):
        truth = truth_of("vo-basic")
        lines = lines_of(truth)
        t = next(t for t in lines if t["misses"] > 1)
        t["misses"], t["empty_polls"] = t["misses"] - 1, 1
        self.assertEqual(transfers.compare(lines, truth, transfers.LIMITS).failed, [])
        t["empty_polls"] = 2
        self.assertEqual(len(transfers.compare(lines, truth, transfers.LIMITS).failed), 1)

    def test_nothing_is_no_agreement(self):
        self.assertNotEqual(transfers.compare([], []).failed, [])
        self.assertNotEqual(transfers.compare([], truth_of("vo-basic")).failed, [])


if __name__ == "__main__":
    unittest.main()
