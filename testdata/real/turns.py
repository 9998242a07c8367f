"""The comparison of WebSocket sessions: what the clients see directly and relayed, and records against bytes and engine."""

from __future__ import annotations

import dataclasses
import time

import frames
import live
import servers
import talks
import wire

BY_CHANCE = {"burst_delivery", "client_slow", "paced"}  # flags that a busy machine sets
SLACK = 300_000  # ns: clocks of two processes, kernel stamps turned into monotonic time


class Run:
    """One visit: the clients' views, the bytes of each session, and the engine's account."""

    def __init__(self, s: talks.Live, server, port: int, letter: str):
        server.truth()
        if s.scripts:
            server.next_scripts(s.scripts)
        rec = wire.Recorder(("127.0.0.1", port))
        names = [f"{s.name}-{letter}-{n}" for n in range(len(s.talks))]
        visits = [dataclasses.replace(t.visit, headers={"X-Request-Id": n} if s.named else {}) for t, n in zip(s.talks, names)]
        self.views = live.visit(rec.port, visits)
        self.sockets = [frames.Socket(c) for c in rec.finish()]
        if s.named:
            self.sockets.sort(key=lambda k: names.index(wire.header(k.headers, "x-request-id")))
        time.sleep(0.3 if any(x.left for t in s.talks for x in t.turns) else 0.05)  # an abort reaches the engine a little later
        self.truth = server.truth()


# -- direct against relayed ---------------------------------------------------------------------------
VOLATILE = {"date", "sec-websocket-accept"}


def head(k: frames.Socket) -> tuple:
    return k.status_line, [(n, "#" if n.lower() in VOLATILE else v) for n, v in k.answer]


def same_events(c, at: str, got: list, want: list) -> None:
    """One check; on failure the first event that differs."""
    n = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
    c.that(f"{at}/events", got == want, (n, got[n:n + 1]), (n, want[n:n + 1]))


def starts(a: bytes | str, b: bytes | str) -> bool:
    return a.startswith(b) or b.startswith(a)


def compare(c, name: str, s: talks.Live, direct: Run, relayed: Run) -> bool:
    if not c.same(f"{name}/sessions", (len(direct.sockets), len(relayed.sockets)), (len(s.talks),) * 2):
        return False
    for n, t in enumerate(s.talks):
        at, (dv, rv), (dk, rk) = f"{name}/{n}", (direct.views[n], relayed.views[n]), (direct.sockets[n], relayed.sockets[n])
        c.same(f"{at}/handshake", head(rk), head(dk))
        c.same(f"{at}/deflate", rk.deflate, t.visit.deflate)
        for key in ("sent", "error", "close"):
            c.same(f"{at}/client-{key}", rv[key], dv[key])
        c.same(f"{at}/closer", rk.closer(), dk.closer())
        c.same(f"{at}/errors", dv["error"], None)
        got, want = live.plain(rv["messages"]), live.plain(dv["messages"])
        if t.alike == "same":
            same_events(c, at, got, want)
        elif t.alike == "apart":
            for kind, x, y in zip(("text", "audio", "receipts", "other"), live.apart(got), live.apart(want)):
                same_events(c, f"{at}/{kind}", x, y)
        else:
            c.same(f"{at}/kinds", sorted({*map(live.label, got)}), sorted({*map(live.label, want)}))
        gist(c, at, t, rk, dk)
    return True


def gist(c, at: str, t: talks.Talk, rk: frames.Socket, dk: frames.Socket) -> None:
    """Text and audio of each turn in both runs."""
    a, b = t.reader(rk.events), t.reader(dk.events)
    if not c.same(f"{at}/turns-in-both", (len(a), len(b)), (len(t.turns),) * 2):
        return
    for n, (x, y, want) in enumerate(zip(a, b, t.turns)):
        for what, p, q in (("text", x.text(), y.text()), ("audio", sound(x), sound(y))):
            c.that(f"{at}/turn{n}/{what}-in-both", p == q if want.whole else starts(p, q), len(p), len(q))


def sound(t: frames.Turn) -> bytes:
    return bytes(t.pcm.data) if t.pcm else b""


# -- records against bytes and engine -------------------------------------------------------------------
def asks(t: talks.Talk, k: frames.Socket) -> list[tuple]:
    """(source, message that asks, message that ends the input) of each turn that the client asks for."""
    out, n, sent = [], 0, k.data("c")
    for step in t.visit.steps:
        if not isinstance(step, live.Send):
            continue
        if step.ask:
            out.append((step.ask, sent[n], sent[n]))
        if step.ends:
            out[-1] = (*out[-1][:2], sent[n])
        n += 1
    return out


def engine_of(t: talks.Talk, turn: frames.Turn, said: talks.Said, k: frames.Socket, truths: list, seen: int):
    """The engine's entry that the turn delivers, and whether it agrees: by id where there is one, else by content.

    Of several that agree, the last that was not handed out after it was seen.
    """
    ids = [turn.id, f"{server_session(k)}/{turn.id}"]
    mine = [x for x in truths if x.id in ids]
    mine = mine or [x for x in truths if server_session(k) in x.id] or truths
    good = [x for x in mine if delivers(t, turn, said, x)]
    if not good:
        return (mine[0] if mine else None), False
    first = [x.first_text_ns or x.first_audio_ns or 0 for x in good]
    x = max(zip(first, range(len(good))), key=lambda f: (f[0] <= seen, f[0]))[1]
    truths.remove(good[x])
    return good[x], True


def server_session(k: frames.Socket) -> str:
    """The server's name of the session; one that is in no id where it gives none."""
    for _, m in k.events[:2]:
        if isinstance(m, dict) and m["type"] == "session.created":
            return (m.get("session") or m).get("id") or "?"
    return "?"


def delivers(t: talks.Talk, turn: frames.Turn, said: talks.Said, x: servers.Truth) -> bool:
    text, pcm = "".join(x.texts), b"".join(t.unlike(x.chunks))
    if t.flow == "speech_ws":
        text = ""
    if t.flow == "transcription":
        return turn.text() == text and not pcm
    if not said.whole:
        return text.startswith(turn.text()) and pcm.startswith(sound(turn)) and bool(pcm or text)
    return turn.text() == text and (sound(turn) == pcm if t.audio else bool(turn.pcm) == bool(pcm))


def check_records(c, name: str, s: talks.Live, run: Run, records: list[dict], lines: list[dict]) -> None:
    truths = list(run.truth)
    c.same(f"{name}/records", len(records), sum(len(t.turns) for t in s.talks))
    c.same(f"{name}/session-lines", len(lines), len(s.talks))
    for n, (t, k) in enumerate(zip(s.talks, run.sockets)):
        at = f"{name}/{n}"
        want = wire.header(k.headers, "x-request-id") or (lines[0]["session_id"] if lines else None)
        line = next((x for x in lines if x["session_id"] == want), None)
        if not c.that(f"{at}/session-id", line is not None, [x["session_id"] for x in lines], want):
            continue
        mine = sorted((r for r in records if r["session_id"] == want), key=lambda r: r["turn"])
        try:
            check_session(c, at, t, k, run.views[n], line)
            turns = t.reader(k.events)
            if c.same(f"{at}/turns", ([r["turn"] for r in mine], len(turns)), ([*range(len(t.turns))], len(t.turns))):
                for m, r in enumerate(mine):
                    check_turn(c, f"{at}/turn{m}", t, m, k, turns[m], r, line, truths, s.named)
        except (AssertionError, KeyError, TypeError, ValueError, IndexError) as e:
            c.broke(f"{at}/reading", e)
    left = [x.id for x in truths if x.chunks]
    c.same(f"{name}/engine-requests-without-a-turn", left, [])


def check_session(c, at: str, t: talks.Talk, k: frames.Socket, view: dict, line: dict) -> None:
    by, code = k.closer()
    states: dict[str, int] = {}
    for said in t.turns:
        states[said.state] = states.get(said.state, 0) + 1
    sent = sum(x.samples for x in t.visit.steps if isinstance(x, live.Send))
    pings = sum(isinstance(x, live.Ping) for x in t.visit.steps)
    want = {
        "flow": t.flow, "dialect": at.split("/")[0], "dialect_variant": t.variant, "path": t.visit.path.split("?")[0], "model": t.model,
        "turns": len(t.turns), "states": states, "analysis": "full", "unknown_events": 0, "replayed_events": 0,
        "unattributed_chunks": 0, "errors": t.errors, "input_audio_s": sent / 16000 if t.sound else None,
        "messages_up": view["sent"], "fragments_up": sum(m.frames for m in k.data("c")), "bytes_up": len(k.conn.stream("c")),
        "close_seen_up": k.close_code("c"), "close_seen_down": k.close_code("s"),
        "compression": wire.header(k.answer, "sec-websocket-extensions") or None, "pings_up": pings, "pongs": pings,
        "listens": t.listens, "input_sample_rate": 16000 if t.sound else None,
        "server_session_id": next((m["session_id"] for _, m in k.events if isinstance(m, dict) and "session_id" in m), None)
        if server_session(k) == "?" else server_session(k),
    }
    for key, v in want.items():
        got = line.get(key)
        same = abs(got - v) < 1e-9 if isinstance(v, float) and isinstance(got, (int, float)) else got == v
        c.that(f"{at}/session.{key}", same, got, v)
    left = any(x.left for x in t.turns)
    down = {"messages_down": len(view["messages"]), "fragments_down": sum(m.frames for m in k.data("s")), "bytes_down": len(k.conn.stream("s"))}
    for key, v in down.items():
        c.that(f"{at}/session.{key}", line[key] >= v if left else line[key] == v, line[key], v)
    c.same(f"{at}/closed", (by, code), t.close)
    c.same(f"{at}/session.close", (line["close"]["by"], line["close"]["code"]), (by, code))
    c.same(f"{at}/session.ping_rtt", line["ping_rtt_ms"] is not None, bool(pings))
    c.same(f"{at}/session.flags", line["flags"], [] if k.close_code("c") or k.close_code("s") else ["no_close_frame"])
    begun = next(t for t, side, _ in k.conn.events if side == "s")
    least, most = (k.ended() - begun) / 1e6 - 50, (k.conn.events[-1][0] - begun) / 1e6 + 50  # ms; threads of a busy machine
    c.that(f"{at}/session.duration_ms", least <= line["duration_ms"] <= most, line["duration_ms"], f"{least} … {most}")


def check_turn(c, at: str, t: talks.Talk, n: int, k: frames.Socket, turn: frames.Turn, r: dict, line: dict, truths: list, named: bool) -> None:
    said = t.turns[n]
    truth, agrees = engine_of(t, turn, said, k, truths, r["points"]["t_text"] or r["points"]["t_audio"] or 0)
    c.that(f"{at}/delivered", agrees, (turn.text(), len(sound(turn))),
           truth and ("".join(truth.texts), [len(x) for x in t.unlike(truth.chunks)]))
    ask = ask_of(t, n, k)
    want = {
        "request_id": f"{line['session_id']}-t{n}", "request_id_source": "client" if named else "own",
        "connection_id": line["connection_id"], "turn": n, "flow": t.flow, "dialect": line["dialect"], "dialect_variant": t.variant,
        "method": "GET", "path": line["path"], "status": 101, "stream": True, "model": t.model, "analysis": "full",
        "t_in_source": ask[0] if ask else said.source, "server_request_id": turn.id,
        "t_in_server_offset": turn.stopped if said.source else None,
    }
    for key, v in want.items():
        c.same(f"{at}/{key}", r.get(key), v)
    by = "client" if said.state == "client-cancelled" else "server"
    c.same(f"{at}/terminal", (r["terminal"]["state"], r["terminal"]["by"]), (said.state, by))
    c.same(f"{at}/cancel.by", r["cancel"] and r["cancel"]["by"], said.cancel)
    flags = ["rate_assumed"] if turn.nominal else []
    c.same(f"{at}/flags", [f for f in r["flags"] if f not in BY_CHANCE], flags)
    c.same(f"{at}/quality", (r["quality"]["verdict"], r["quality"]["failed"]), ("passed" if turn.pcm else "not_measured", []))
    c.that(f"{at}/bytes", 0 <= r["bytes_up"] <= line["bytes_up"] and 0 < r["bytes_down"] <= line["bytes_down"],
           (r["bytes_up"], r["bytes_down"]), (line["bytes_up"], line["bytes_down"]))
    if said.heard:
        c.same(f"{at}/input", (r["input"]["bytes"], r["input"]["audio_s"]), (2 * said.heard, said.heard / 16000))
    check_text(c, at, t, turn, r)
    check_audio(c, at, turn, r, said, truth)
    check_points(c, at, t, k, turn, r, said, ask, truth if agrees else None)


def ask_of(t: talks.Talk, n: int, k: frames.Socket) -> tuple | None:
    found = asks(t, k)
    return found[n] if n < len(found) else None


def check_text(c, at: str, t: talks.Talk, turn: frames.Turn, r: dict) -> None:
    text = turn.text().encode()
    c.same(f"{at}/text_bytes", r["text_bytes"] or 0, len(text))
    c.same(f"{at}/text_sha256", r["text_sha256"] if text else None, wire.sha256(text) if text else None)
    c.same(f"{at}/text_units", r["text_units"] or 0, turn.snapshots or len(turn.texts))
    if text:
        c.same(f"{at}/text_unit", r["text_unit"], "delta")


def check_audio(c, at: str, turn: frames.Turn, r: dict, said: talks.Said, truth) -> None:
    a, p = r["audio"] or {}, turn.pcm
    if p is None:
        c.that(f"{at}/no-audio", not a.get("samples"), a, "no samples")
        return
    want = {"container": turn.container, "encoding": turn.encoding, "samples": p.samples(), "chunks": p.chunks,
            "sha256": wire.sha256(bytes(p.data)), "channels": 1, "sample_rate": p.rate, "assumed_sample_rate": None, "chunk_unit": "message"}
    if said.left:
        data, n = b"".join(truth.chunks), 2 * (a.get("samples") or 0)
        c.that(f"{at}/audio.samples-at-least", len(p.data) <= n <= len(data), n, (len(p.data), len(data)))
        want.update(samples=n // 2, chunks=a.get("chunks"), sha256=wire.sha256(data[:n]))
    for key, v in want.items():
        c.same(f"{at}/audio.{key}", a.get(key), v)
    if said.left:
        return
    c.same(f"{at}/audio_gap_ms.n", (r["audio_gap_ms"] or {}).get("n", 0), p.chunks - 1)
    c.that(f"{at}/audio_s", abs((r["audio_s"] or 0) - p.samples() / p.rate) < 1e-6, r["audio_s"], p.samples() / p.rate)
    if r["flow"] == "speech_ws" and said.state == "success":
        c.same(f"{at}/audio.declared_samples", a.get("declared_samples"), p.samples())


def check_points(c, at: str, t, k: frames.Socket, turn: frames.Turn, r: dict, said, ask, truth) -> None:
    p, off = r["points"], r["offsets"]
    want = {"t_text": turn.first_text, "t_audio_event": turn.audio_event, "t_audio": turn.pcm and turn.pcm.playable,
            "t_audible": turn.pcm and turn.pcm.audible, "t_term": turn.term if said.marker else None,
            "t_in": ask[1].end if ask else None, "t_body": ask[2].end if ask else None}
    if turn.encoding != "pcm_s16le":
        want.pop("t_audible")
    for name, o in want.items():
        c.same(f"{at}/offsets.{name}", off[name], o)
        if o is None and name not in ("t_in", "t_body"):
            seen = name == "t_term"  # where the cut was seen has no byte
            c.that(f"{at}/unmeasured.{name}", seen or p[name] is None and bool(r["unmeasured"].get(f"points.{name}")), p[name], None)
    if ask:
        sent = k.conn.time_of("c", ask[1].start)
        up = k.conn.time_of("c", ask[2].end)
        c.that(f"{at}/t_in-after-send", p["t_in"] >= sent - SLACK, p["t_in"], f">= {sent}")
        c.that(f"{at}/t_body-after-send", p["t_body"] >= max(up, p["t_in"]) - SLACK, p["t_body"], f">= {up}")
        c.that(f"{at}/t_up-after-t_body", p["t_up"] is not None and p["t_up"] >= p["t_body"], p["t_up"], f">= {p['t_body']}")
    elif turn.stopped:
        seen = k.conn.time_of("s", turn.stopped)
        c.that(f"{at}/t_in-before-seen", p["t_in"] is not None and p["t_in"] <= seen + SLACK, p["t_in"], f"<= {seen}")
    else:
        c.that(f"{at}/no-t_in", p["t_in"] is None and r["ttft_ms"] is None and r["ttfa_ms"] is None, p["t_in"], None)
    if t.flow == "transcription":  # the entry is that of the last pass, the first text came of an earlier one
        truth = None
    for name, engine in (("t_text", truth and truth.first_text_ns), ("t_audio", truth and truth.first_audio_ns), ("t_term", None)):
        if p[name] and off[name]:
            seen = k.conn.time_of("s", off[name])
            c.that(f"{at}/{name}-between", (engine or 0) - SLACK <= p[name] <= seen + SLACK, p[name], f"{engine} … {seen}")
    check_times(c, at, t, p, off, r)


def check_times(c, at: str, t, p: dict, off: dict, r: dict) -> None:
    """What is reckoned from the points, and their order: that of their bytes."""
    for name, ms in (("t_text", "ttft_ms"), ("t_audio", "ttfa_ms"), ("t_audible", "ttfaudible_ms"), ("t_term", "jct_ms")):
        if p[name] is None or p["t_in"] is None:
            c.same(f"{at}/{ms}", r[ms], None)
        elif r[ms] is not None or p[name] >= p["t_in"]:
            c.that(f"{at}/{ms}", r[ms] is not None and abs(r[ms] - (p[name] - p["t_in"]) / 1e6) < 0.002, r[ms], (p[name] - p["t_in"]) / 1e6)
    if r["jct_ms"] and r["audio_s"]:
        rtf = r["jct_ms"] / 1e3 / r["audio_s"]
        c.that(f"{at}/rtf", r["rtf"] is not None and abs(r["rtf"] - rtf) < 1e-6, r["rtf"], rtf)
    names = sorted((x for x in ("t_text", "t_audio_event", "t_audio", "t_audible", "t_term") if off[x]), key=lambda x: off[x])
    c.that(f"{at}/order {'<='.join(names)}", all(p[a] <= p[b] for a, b in zip(names, names[1:])), [p[x] for x in names], "ascending")
    if t.flow != "transcription" and p["t_in"] and names:
        c.that(f"{at}/t_in-first", p["t_in"] <= min(p[x] for x in names), p["t_in"], min(p[x] for x in names))
