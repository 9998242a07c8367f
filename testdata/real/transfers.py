"""What the ground truth says about transfers, and whether the lines of `omnitap replay --stages` say the same.

    PYTHON testdata/real/transfers.py LINES.jsonl TRUTH

TRUTH is a folder with truth-*.jsonl of a harness in connectors/ or stage_*.jsonl of sglang-omni/serve_toy.py, or a recorded
set's expected.json. Prints a table of errors and a
line a failed check, then "N passed, M failed"; exit 1 if one failed.

A transfer, of either side, is a dict with the keys of one such line: transport, request, from, to, chunk, bytes, key,
tx_start_ns, tx_end_ns, rx_start_ns, rx_end_ns, wait_start_ns, misses, match, confidence, unread. None is "not seen",
or in the truth "did not happen"; the truth leaves out the keys of what it does not know. Times are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import bisect
import glob
import gzip
import json
import os
import statistics
import sys
from dataclasses import dataclass, field

VLLM_STAGES = ["thinker", "talker", "code2wav"]
TIMES = ["tx_start_ns", "tx_end_ns", "rx_start_ns", "rx_end_ns", "wait_start_ns"]

# The bounds of |error| in µs at the median and at p99. The truth's own lines (5 to 20 µs each) and the waits of a loaded
# machine between the two stamps are in it. A column that is not here is shown, not judged: SGLang-Omni's tx_start is
# before the wait for a credit in the truth; Mooncake's rx_end is after decoding there, which no event tells (late_end).
NEAR = (250, 20000)
LIMITS = {
    "vllm-omni": dict.fromkeys(TIMES, NEAR),
    "sglang-omni": dict.fromkeys(["tx_end_ns", "rx_start_ns", "rx_end_ns"], NEAR),
    # the call hands over to a thread before the first byte is sent, and the first of all connects
    "mooncake": {"tx_start_ns": (1000, 20000), "tx_end_ns": NEAR, "rx_start_ns": NEAR, "wait_start_ns": NEAR},
    # from the durations of the server's own trace, which is written later
    "sglang-toy": {"tx_end_ns": (1000, 20000), "rx_end_ns": (1000, 20000)},
}
FEW = 20  # errors from which on their median says what it should; of fewer, four times the bound


# --- reading


def read_lines(path: str) -> list[dict]:
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        return [json.loads(x) for x in f if x.strip()]


def read_truth(directory: str) -> list[dict]:
    """The events of all stages, in the order of time. A line that a killed stage cut off is left out."""
    out = []
    for pattern in ("truth-*.jsonl", "stage_*.jsonl"):
        for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
            with open(path) as f:
                out += [json.loads(x) for x in f if x.endswith("}\n")]
    return sorted(out, key=lambda e: e["mono_ns"])


# --- from ground truth to transfers


def expected(truth: list[dict]) -> list[dict]:
    """The transfers of a ground truth, as they begin."""
    kinds = {e["event"] for e in truth}
    for kind, make in (("transfer_start", of_mooncake), ("msg_send", of_sglang), ("transfer_send", of_toy)):
        if kind in kinds:
            return sorted(make(truth), key=begin)
    return sorted(of_vllm(truth), key=begin)


def begin(t: dict) -> int:
    return t.get("tx_start_ns") or t.get("announced_ns") or t.get("rx_start_ns") or 0


def events(truth: list[dict], *keys: str) -> dict:
    """Lists of events by (event, …keys)."""
    out: dict = {}
    for e in truth:
        out.setdefault((e["event"], *(e.get(k) for k in keys)), []).append(e)
    return out


def of_vllm(truth: list[dict]) -> list[dict]:
    """A name may be written again: what is read belongs to the last write before it."""
    by, out = events(truth, "key"), []
    for (event, key), ends in by.items():
        if event != "write_end":
            continue
        starts = [e["mono_ns"] for e in by["write_start", key]]
        for i, w in enumerate(ends):
            span = (w["mono_ns"], starts[i + 1] if i + 1 < len(starts) else 1 << 63)
            at = {e: within(by.get((e, key), []), span) for e in ("read_start", "read_end")}
            got = with_read(by.get(("get_start", key), []), at["read_start"])
            out.append(vllm_transfer(w, starts[i], at, got))
    return out


def within(found: list[dict], span: tuple[int, int]) -> int | None:
    return next((e["mono_ns"] for e in found if span[0] <= e["mono_ns"] < span[1]), None)


def with_read(gets: list[dict], read: int | None) -> dict | None:
    """The get that a read is part of: the last that began before it."""
    return None if read is None else max((g for g in gets if g["mono_ns"] <= read), key=lambda g: g["mono_ns"])


def vllm_transfer(w: dict, start: int, at: dict, got: dict | None) -> dict:
    n = VLLM_STAGES.index(w["stage"])
    return {
        "server": "vllm-omni", "transport": "shm", "request": w["request_id"], "from": w["stage"], "to": VLLM_STAGES[n + 1],
        "chunk": w["chunk"], "bytes": w["bytes"], "key": w["key"], "tx_start_ns": start, "tx_end_ns": w["mono_ns"],
        "rx_start_ns": at["read_start"], "rx_end_ns": at["read_end"], "misses": got and got["misses"],
        "wait_start_ns": got["first_poll_ns"] if got and got["misses"] else None, "unread": got is None, "match": "id",
    }


def of_sglang(truth: list[dict]) -> list[dict]:
    """One a data_ready message with something to fetch; small ones ride inside the message."""
    by_key, out = events(truth, "key"), []
    by_object = events(truth, "type", "request_id", "object_id")
    by_chunk = events(truth, "type", "request_id", "from_stage", "chunk")
    for m in truth:
        if m["event"] != "msg_send" or m["type"] != "data_ready" or not m["ref_type"]:
            continue

        def one(event, key=m["key"]):
            found = by_key.get((event, key)) if key else None
            return found[0]["mono_ns"] if found else None

        rid = m["request_id"]
        if m["object_id"]:
            heard = by_object.get(("msg_recv", "data_ready", rid, m["object_id"]))
        else:
            heard = by_chunk.get(("msg_recv", "data_ready", rid, m["from_stage"], m["chunk"]))
        rx = one("get_start") or (heard[0]["mono_ns"] if heard else None)
        out.append({
            "server": "sglang-omni", "transport": "shm" if m["key"] else "inline", "request": rid, "from": m["from_stage"],
            "to": m["to_stage"], "chunk": m["chunk"], "bytes": m["bytes"], "key": m["key"], "announced_ns": m["mono_ns"],
            "tx_start_ns": one("put_start"), "tx_end_ns": one("put_end"), "rx_start_ns": rx, "rx_end_ns": one("get_end"),
            "match": "id",
        })
    return out


def of_mooncake(truth: list[dict]) -> list[dict]:
    """One at a time, so in order. `misses` are of calls that asked the sender; no probe counts just those."""
    by, ends = events(truth), events(truth, "key")
    out = []
    for a, b, g in zip(by["transfer_start",], by["transfer_end",], by["get_start",], strict=True):
        out.append({
            "server": "mooncake", "transport": "tcp", "request": g["request_id"], "from": "thinker", "to": "talker",
            "chunk": g["chunk"], "bytes": a["bytes"], "key": g["key"], "tx_start_ns": a["mono_ns"],
            "tx_end_ns": b["mono_ns"], "rx_start_ns": g["mono_ns"], "rx_end_ns": ends["get_end", g["key"]][0]["mono_ns"],
            "wait_start_ns": g["first_poll_ns"] if g["misses"] else None, "unread": False, "match": "id",
        })
    return out


def of_toy(truth: list[dict]) -> list[dict]:
    """The server's own trace says neither a segment's name nor a payload's size and reading."""
    by = events(truth, "request_id", "from_stage", "to_stage", "chunk_id")
    out = []
    for m in truth:
        if m["event"] != "transfer_send":
            continue
        who = (m["request_id"], m["from_stage"], m["to_stage"], m.get("chunk_id"))
        t = {"server": "sglang-toy", "transport": m["transport"], "request": who[0], "from": who[1], "to": who[2],
             "chunk": who[3], "announced_ns": m["mono_ns"], "match": "id"}
        if m["transport"] != "inline":
            t["tx_end_ns"] = m["mono_ns"] - round(m["control_send_ms"] * 1e6)
            t["tx_start_ns"] = t["tx_end_ns"] - round(m["write_ms"] * 1e6)
            read = by.get(("transfer_read", *who))
            if read and m["kind"] == "stream_chunk":
                t["bytes"] = m["bytes"]
                t["rx_end_ns"] = read[0]["mono_ns"]
                t["rx_start_ns"] = t["rx_end_ns"] - round(read[0]["elapsed_ms"] * 1e6)
        out.append(t)
    return out


def from_expected(e: dict) -> list[dict]:
    """The transfers of a recorded set's expected.json."""
    out = []
    for t in e["transfers"]:
        t = {**t, "from": t["frm"], "server": "mooncake" if t["transport"] == "tcp" else e["server"].split()[0]}
        del t["frm"]
        if t["server"] == "vllm-omni":
            t["unread"] = t["rx_start_ns"] is None
        out.append(t)
    return out


# --- comparing


@dataclass
class Report:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    table: list[str] = field(default_factory=list)

    def that(self, ok: bool, what: str) -> None:
        if ok:
            self.passed += 1
        else:
            self.failed.append(what)

    def __str__(self) -> str:
        head = ["| what | seen | error µs, median / p99 of the absolute |", "| --- | --- | --- |"]
        return "\n".join([*head, *self.table, *("FAIL " + f for f in self.failed),
                          f"{self.passed} passed, {len(self.failed)} failed"])


def compare(transfers: list[dict], truth: list[dict], limits: dict = LIMITS) -> Report:
    """Holds the lines to the truth, which is what expected or from_expected gives."""
    r = Report()
    pairs, extra = pair(transfers, truth)
    for got, want in pairs:
        if got is None:
            r.that(False, f"not found: {name(want)}")
            continue
        same(r, got, want)
        r.that(True, "found")
    for got in extra:
        r.that(False, f"is no transfer: {name(got)}")
    r.that(bool(pairs), "the truth holds no transfer")
    both = [p for p in pairs if p[0] is not None]
    count_misses(r, both)
    for server, transport in sorted({(w["server"], w["transport"]) for _, w in pairs}):
        mine = [p for p in pairs if (p[1]["server"], p[1]["transport"]) == (server, transport)]
        judge_times(r, f"{server} {transport}", server, mine, limits)
    return r


def name(t: dict) -> str:
    return f"{t.get('transport')} {t.get('request')} {t.get('from')} → {t.get('to')} chunk {t.get('chunk')} key {t.get('key')}"


def identity(t: dict, by_key: bool) -> tuple:
    """By key where there is one, so that a wrong request shows as such."""
    if by_key and t.get("key"):
        return (t["key"],)
    return t.get("transport"), t.get("request"), t.get("from"), t.get("to"), t.get("chunk")


def pair(transfers: list[dict], truth: list[dict]) -> tuple[list, list[dict]]:
    """(line or None, truth) for each of the truth, and the lines that are left. A name used again: in the order of time."""
    have: dict = {}
    by_key = any("key" in w for w in truth)
    for t in sorted(transfers, key=begin):
        have.setdefault(identity(t, by_key), []).append(t)
    pairs = [(have[i].pop(0) if have.get(i := identity(w, by_key)) else None, w) for w in sorted(truth, key=begin)]
    return pairs, [t for rest in have.values() for t in rest]


def same(r: Report, got: dict, want: dict) -> None:
    for k in ("transport", "request", "from", "to", "chunk", "bytes", "key", "match"):
        if k not in want:
            continue
        r.that(got.get(k) == want[k], f"{name(want)}: {k} is {got.get(k)!r}, want {want[k]!r}")
    if "unread" in want:
        r.that(bool(got.get("unread")) == want["unread"], f"{name(want)}: unread is {got.get('unread')}, want {want['unread']}")
    c = got.get("confidence")
    r.that(isinstance(c, (int, float)) and 0.5 <= c <= 1, f"{name(want)}: confidence is {c!r}")


def count_misses(r: Report, pairs: list) -> None:
    """Equal; for its receiver a poll that met a still empty segment, which opens, is a miss too."""
    empty = known = 0
    for got, want in pairs:
        if want.get("misses") is None:
            continue
        known += 1
        n, met = got.get("misses") or 0, got.get("empty_polls") or 0
        empty += met
        r.that(n + met == want["misses"], f"{name(want)}: {n} misses and {met} empty, want {want['misses']}")
    if known:
        r.table.append(f"| misses | of {known}, {empty} polls met an empty segment | |")


def judge_times(r: Report, title: str, server: str, pairs: list, limits: dict) -> None:
    found = sum(g is not None for g, _ in pairs)
    cells = []
    for column in TIMES:
        errors = []
        for got, want in pairs:
            if got is None:
                continue
            e = error(r, got, want, column)
            if e is not None:
                errors.append(e / 1e3)
        if not errors:
            continue
        middle, p99 = statistics.median(errors), percentile([abs(e) for e in errors], 0.99)
        cells.append(f"{column.removesuffix('_ns')} {middle:+.0f} / {p99:.0f}")
        if most := limits[server].get(column):
            spread = statistics.median([abs(e) for e in errors])
            bound = most[0] if len(errors) >= FEW else 4 * most[0]
            r.that(spread <= bound, f"{title} {column}: median of the absolute error {spread:.0f} µs, want {bound} or less")
            r.that(p99 <= most[1], f"{title} {column}: p99 of the absolute error {p99:.0f} µs, want {most[1]} or less")
    r.table.append(f"| {title} | {found} of {len(pairs)} | {'; '.join(cells)} |")


def error(r: Report, got: dict, want: dict, column: str) -> int | None:
    """The difference in ns where both have the time; where one alone has it, that is a failed check."""
    if column not in want:
        return None
    g, w = got.get(column), want[column]
    if column == "wait_start_ns" and g is None and want.get("misses") and got.get("empty_polls") == want["misses"]:
        return None  # every miss met a still empty segment: there was no poll for one that was not there
    if column == "rx_start_ns" and g is None and want["transport"] == "shm" and want.get("rx_end_ns") is None:
        return None  # the receiver's process ended between its account and its call
    if (server := want["server"]) == "mooncake" and column == "rx_end_ns":
        late_end(r, got, want)
    if g is None or w is None:
        r.that(g is w, f"{name(want)}: {column} is {g}, want {w} ({server})")
        return None
    return g - w


def late_end(r: Report, got: dict, want: dict) -> None:
    g = got.get("rx_end_ns")
    ok = g is not None and (got.get("tx_start_ns") or 0) <= g <= want["rx_end_ns"] + 5_000_000
    r.that(ok, f"{name(want)}: rx_end_ns is {g}, not between the start and {want['rx_end_ns']}")


def percentile(values: list, q: float) -> float:
    """By nearest rank."""
    v = sorted(values)
    return v[min(len(v) - 1, max(0, bisect.bisect_left(range(1, len(v) + 1), q * len(v))))]


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    lines, where = sys.argv[1:]
    if os.path.isdir(where):
        truth = expected(read_truth(where))
    else:
        with open(where) as f:
            truth = from_expected(json.load(f))
    report = compare(read_lines(lines), truth)
    print(report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
