"""What drive.py says to each real server over WebSockets: one Live a visit, of one or several sessions. Data only."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import Callable

import frames
from live import Drain, Leave, Ping, Send, Visit, Wait, append
from scenarios import say
from visit import tone_wav


@dataclass
class Said:
    """A turn as it must come out. Its source is that of the step that asks for it, or else this."""

    state: str = "success"
    source: str | None = None
    whole: bool = True  # False: cut off, what came is the start of what the engine made
    left: bool = False  # the client left in it: the relay may have read more than the client
    marker: bool = True  # False: no end marker comes
    cancel: str | None = None  # what asked it to stop: a message of the "client", or "speech"
    heard: int = 0  # samples that the client sent for it, where that is no matter of chance


@dataclass
class Talk:
    """One session."""

    visit: Visit
    flow: str
    variant: str
    reader: Callable
    turns: list[Said]
    close: tuple  # who ends it, with what code
    model: str | None
    # How alike two runs are: "same" in every event, "apart" in text and audio each, "gist" in kinds and starts.
    alike: str = "same"
    unlike: Callable = lambda truth_chunks: truth_chunks  # what the server makes of the engine's audio
    sound: bool = True  # the form has sound of the client
    audio: bool = True  # the engine's samples come as they are
    errors: int = 0
    listens: int = 0  # units of sound that the model chose not to answer


@dataclass
class Live:
    name: str
    talks: list[Talk]
    scripts: list = field(default_factory=list)  # of requests that carry no text, in order
    options: tuple = ()
    named: bool = True


def both(name: str, talk: Talk, **kw) -> list[Live]:
    """The talk with either client, and with and without deflate."""
    other = replace(talk, visit=replace(talk.visit, client="aiohttp", deflate=True))
    return [Live(name, [talk], **kw), Live(f"{name}-aiohttp-deflate", [other], **kw)]


def leaving(talk: Talk, after: list) -> Talk:
    """The talk, left without a close frame: after is what takes the place of all that follows its first ask."""
    steps = talk.visit.steps
    ask = next(n for n, x in enumerate(steps) if isinstance(x, Send) and x.ask)
    turn = Said("client-cancelled", whole=False, left=True, marker=False)
    return replace(talk, visit=replace(talk.visit, steps=[*steps[:ask + 1], *after, Leave()]), turns=[turn], close=("client", None), alike="gist")


def packed(talk: Talk) -> Talk:
    return replace(talk, visit=replace(talk.visit, deflate=True))


def by_aiohttp(talk: Talk) -> Talk:
    return replace(talk, visit=replace(talk.visit, client="aiohttp"))


# -- vLLM-Omni ------------------------------------------------------------------------------------
MODEL = "fake-omni"
DUPLEX = ("--persona", "duplex", "--script", json.dumps({"units": ["listen", "speak", "speak"]}))


def nearer_zero(chunks: list[bytes]) -> list[bytes]:
    """The turn dialect's encoder truncates: every value comes one nearer to 0."""
    def one(b: bytes) -> bytes:
        v = struct.unpack(f"<{len(b) // 2}h", b)
        return struct.pack(f"<{len(v)}h", *(x - (x > 0) + (x < 0) for x in v))

    return [one(c) for c in chunks]


def without_head(chunks: list[bytes]) -> list[bytes]:
    """Video chat leaves out 1920 samples of a first delta longer than 3840."""
    return [chunks[0][3840:], *chunks[1:]] if chunks and len(chunks[0]) > 7680 else chunks


def vspeech(texts: list[str], turns: list[Said], closes: bool = True, pieces: int = 1, **config) -> Talk:
    """closes: by a message to the server, which then ends the connection."""
    todo: list = [Send({"type": "session.config", **config})]
    for t in texts:
        half = len(t) // 2
        todo += [Send({"type": "input.text", "text": t[:half]}, pieces=pieces), Send({"type": "input.text", "text": t[half:]}),
                 Send({"type": "input.done"}, ask="input.done"), Wait("session.done")]
    todo += [Ping(), Send({"type": "session.close"}), Drain()] if closes else []
    return Talk(Visit("/v1/audio/speech/stream", todo), "speech_ws", "speech_stream", frames.utterances, turns,
                ("server" if closes else "client", 1000), config.get("model"), sound=False)


def vrealtime(turns: list[Said]) -> Talk:
    todo: list = [Wait("session.created"), Send({"type": "session.update", "model": MODEL})]
    for _ in turns:
        todo += [Send({"type": "input_audio_buffer.commit", "final": False}, ask="commit"),
                 *[append(640, 6000, 0.01)] * 3,
                 Send({"type": "input_audio_buffer.commit", "final": True}, ends=True), Wait("response.audio.done")]
    return Talk(Visit("/v1/realtime", todo), "realtime", "realtime_turn", frames.generations, [replace(t, heard=1920) for t in turns],
                ("client", 1000), MODEL, unlike=nearer_zero)


def png(color: tuple) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    rows = (b"\0" + bytes(color) * 16) * 16
    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
                            + chunk(b"IEND", b"")).decode()


def vvideo(texts: list[str], turns: list[Said], interrupts: bool = False) -> Talk:
    todo: list = [Send({"type": "session.config"})]
    for i, color in enumerate(((200, 20, 20), (20, 200, 20))):
        todo.append(Send({"type": "video.frame", "data": png(color), "frame_id": f"f{i}", "pts_ms": 40 * i}))
    for i, q in enumerate(texts):
        todo.append(Send({"type": "video.query", "text": q}, ask="video.query"))
        todo.append(Wait("response.text.delta", 2) if interrupts and i == 0 else Wait("response.audio.done"))
    todo += [Send({"type": "video.done"}), Wait("session.done"), Drain()]
    return Talk(Visit("/v1/video/chat/stream", todo), "video_chat", "video_chat", frames.queries, turns, ("server", None), None,
                unlike=without_head, alike="gist" if interrupts else "same")


def vduplex(texts: list[str], turns: list[Said], native: bool = False, cancels: bool = False) -> Talk:
    todo: list = [Send({"type": "session.create" if native else "session.update",
                        "session": {"model": MODEL, "modalities": ["text", "audio"]}}), Wait("session.created")]
    for i, t in enumerate(texts):
        if native:
            todo += [Send({"type": "input.text.append", "text": t}), Send({"type": "input.commit"}, ask="commit")]
        else:
            todo += [Send({"type": "conversation.item.create", "item": {
                "type": "message", "role": "user", "content": [{"type": "input_text", "text": t}]}}),
                Send({"type": "response.create"}, ask="response.create")]
        if cancels and i == 0:
            todo += [Wait("response.audio.delta"), Send({"type": "response.cancel"})]
        todo.append(Wait("response.done"))
    todo += [Send({"type": "session.close"}), Wait("session.closed"), Drain()]
    return Talk(Visit("/v1/duplex" if native else "/v1/realtime?duplex=1", todo), "duplex", "duplex", frames.responses, turns,
                ("server", None), MODEL, alike="gist" if cancels else "same")


def vunits(units: list[int], form: str) -> Talk:
    """Model-native duplex: a second of sound a unit, no commit; 1 where the model will speak."""
    ref = base64.b64encode(tone_wav(0.25)).decode()
    todo: list = [Send({"type": "session.update", "session": {
        "model": MODEL, "modalities": ["text", "audio"], "output_audio_format": form,
        "ref_audio": "data:audio/wav;base64," + ref,
        "extra_body": {"minicpmo45_native_duplex": True, "auto_response": True}}}), Wait("session.created")]
    for speaks in units:
        todo += [*[append(4000, 6000)] * 4, Wait("response.done" if speaks else "response.listen")]
    todo += [Send({"type": "session.close"}), Wait("session.closed"), Drain()]
    return Talk(Visit("/v1/realtime?duplex=1", todo), "duplex", "duplex", frames.responses, [Said()] * sum(units),
                ("server", None), MODEL, audio=form == "pcm16", listens=units.count(0))


def vllm_live() -> list[Live]:
    turn = {"samples": [1200, 1200, 2400], "text": ["Sure", ", ", "here."]}
    other = {**turn, "start": 9000, "rate": 16000, "text": ["Yes."]}
    speak = {"samples": [1920, 2400, 2400], "text": ["Good ", "day", "."]}
    bye = {"samples": [2400], "start": 7000, "text": ["Bye"]}
    grows = {"cumulative": True, "samples": [4800, 2400, 2400]}
    long = {"cumulative": True, "gap_ms": 40, "order": "text_first", "text": [f"t{i} " for i in range(30)]}
    ok, pcm = Said(), {"response_format": "pcm", "stream_audio": True}
    failed, cut = Said("server-error"), Said("client-cancelled", whole=False)
    def stream(start: int) -> Talk:
        return vspeech([say("First.", {"samples": [240, 1200, 1200], "start": start}),
                        say("Second one.", {"samples": [1000, 777], "start": start + 4000})], [ok, ok], pieces=3, model=MODEL, **pcm)

    whole = vspeech([say("Packed.", {"start": 700}), say("Again.", {"start": 2000, "rate": 22050})], [ok, ok], closes=False, response_format="wav")
    realtime, video = vrealtime([ok, ok]), vvideo(
        [say("What?", grows), say("And now?", {**grows, "samples": [2400, 2400], "start": 3000, "text": ["A", " dog"]})], [ok, ok])
    duplex = vduplex([say("One.", {"samples": [1200, 1200]}), say("Two.", {"samples": [2400], "start": 5000, "text": ["Zwei"]})], [ok, ok])
    mixed = [stream(1000), packed(by_aiohttp(stream(2500))), whole, packed(realtime), by_aiohttp(realtime), video, packed(by_aiohttp(video)), duplex]
    kw = {"options": DUPLEX}
    return [
        *both("ws-speech-stream", stream(0), **kw),
        *both("ws-speech-whole", whole, **kw),
        *both("ws-speech-error", vspeech([say("Bad.", {"fault": "error", "fault_after": 2}), say("Good.", {"chunks": 2})],
                                         [failed, ok], **pcm), **kw),
        Live("ws-speech-unnamed", [packed(vspeech([say("Nameless.", {"chunks": 2})], [ok], **pcm))], named=False, **kw),
        *both("ws-realtime-two-turns", realtime, scripts=[turn, other], **kw),
        Live("ws-realtime-error", [packed(vrealtime([failed]))], scripts=[{**turn, "fault": "error", "fault_after": 4}], **kw),
        *both("ws-video-two-queries", video, **kw),
        Live("ws-video-interrupted", [packed(vvideo(
            [say("Long.", long), say("Stop.", {"cumulative": True, "text": ["Ok."], "samples": [2400]})],
            [replace(cut, marker=False, cancel="client"), ok], interrupts=True))], **kw),
        *both("ws-duplex-two-responses", duplex, **kw),
        Live("ws-duplex-cancelled", [by_aiohttp(vduplex(
            [say("Long.", {"chunks": 20, "samples": 1200, "gap_ms": 30, "text": ["a", "b", "c"]}),
             say("Short.", {"samples": [1200], "text": ["ok"]})], [replace(cut, cancel="client"), ok], cancels=True))], **kw),
        Live("ws-duplex-native", [packed(vduplex([say("One.", {"samples": [1200, 1200]}), say("Two.", {"samples": [2400], "start": 5000})],
                                                 [ok, ok], native=True))], **kw),
        Live("ws-duplex-model-native", [packed(vunits([0, 1, 1], "pcm16"))], scripts=[speak, bye], **kw),
        Live("ws-duplex-model-native-ulaw", [by_aiohttp(vunits([0, 1], "g711_ulaw"))], scripts=[speak], **kw),
        Live("ws-speech-left", [leaving(packed(vspeech([say("Long.", {"chunks": 40, "gap_ms": 30})], [ok], **pcm)), [Wait("binary", 3)])], **kw),
        Live("ws-mixed", mixed, **kw),
    ]


# -- SGLang-Omni ----------------------------------------------------------------------------------
TOY = "toy-omni"


def sspeech(said: list, turns: list[Said], settings: dict, nested: bool = False, **config) -> Talk:
    """said: steps between the configuration and input.done."""
    more = {"model": TOY, "voice": "default", "stage_params": {"toy": settings}, **config}
    todo = [Send({"type": "session.config", **({"session": more} if nested else more)}), Wait("session.configured"), *said,
            Wait("session.done"), Drain()]
    return Talk(Visit("/v1/audio/speech/stream", todo), "speech_ws", "speech_stream", frames.sentences, turns, ("server", 1000), TOY,
                sound=False)


def text(words: str, ask: str | None = None) -> Send:
    return Send({"type": "input.text", "text": words}, ask=ask)


def done(ask: str | None = None) -> Send:
    return Send({"type": "input.done"}, ask=ask)


def spoken(level: int = 3000) -> list:
    """300 ms of sound and 300 ms of silence, faster than real time as the server allows."""
    return [*[append(1600, level, 0.02)] * 3, *[append(1600, 0, 0.02)] * 3]


HEARD = Wait("conversation.item.input_audio_transcription.completed")


def conversation(settings: dict, steps: list, turns: list[Said], alike: str = "apart") -> Talk:
    todo = [Wait("session.created"), Send({"type": "session.update", "session": {
        "modalities": ["text", "audio"], "instructions": f"Be brief. [[toy {json.dumps(settings)}]]",
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}), Wait("session.updated"), *steps]
    return Talk(Visit("/v1/realtime?model=toy-omni", todo), "realtime", "conversation", frames.responses, turns, ("client", 1000), TOY,
                alike=alike)


def transcription() -> Talk:
    todo = [Wait("session.created"), *[append(1600, 3000, 0.06)] * 9, *[append(1600, 0, 0.03)] * 6,
            *[append(1600, 3000, 0.06)] * 3, *[append(1600, 0, 0.03)] * 6, Send({"type": "transcription.done"}),
            Wait("transcription.completed")]
    return Talk(Visit("/v1/realtime?intent=transcription", todo), "transcription", "transcription_segments", frames.segments,
                [Said(source="server_vad")] * 2, ("client", 1000), TOY, alike="gist")


def sduplex(levels: list[int], turns: list[Said], instructions: str = "Answer.") -> Talk:
    """levels: of each 100 ms of sound."""
    todo: list = [Wait("session.created"), Send({"type": "session.update", "event_id": "u1", "session": {
        "type": "realtime", "model": TOY, "output_modalities": ["text", "audio"], "instructions": instructions}}), Wait("session.updated")]
    todo += [append(1600, level, 0.06, event_id=f"c{i}", sglang={"seq": i}) for i, level in enumerate(levels)]
    if turns[-1].state == "success":
        todo += [Wait("response.done", len(turns)), Send({"type": "sglang.input_audio.end", "event_id": "e1"}),
                 Wait("sglang.input_audio.drained"), Send({"type": "session.close", "event_id": "x1"})]
    todo += [Wait("session.closed"), Drain()]
    return Talk(Visit("/v1/realtime", todo), "duplex", "shared", frames.responses, turns, ("server", 1000), TOY, alike="apart")


def sglang_live() -> list[Live]:
    ok, vad, failed = Said(), Said(source="server_vad"), Said("server-error")
    three = {"samples": [500, 1900, 1200], "chunks": 3}
    stream = sspeech([text("The first sentence. And", "input.text"), Wait("audio.done"), Send({"type": "input.commit"}, ask="input.commit"),
                      Wait("input.committed"), text(" a second one"), done("input.done")], [ok] * 3, three,
                     stream_audio=True, response_format="pcm")
    whole = sspeech([text("One clause, ", "input.text"), text("and another.", "input.text"), done()], [ok] * 2,
                    {"samples": 800, "chunks": 2}, nested=True, response_format="wav", split_granularity="clause")
    two = conversation({"samples": [400, 2000, 1200], "chunks": 3, "tokens": 5},
                       [*spoken(), Wait("response.done"), HEARD, *spoken(), Wait("response.done"), HEARD], [vad, vad])
    heard = transcription()
    duplex = sduplex([2500] * 8 + [0] * 4 + [2500] * 8, [ok] * 2)
    mixed = [stream, packed(by_aiohttp(stream)), packed(whole), two, packed(by_aiohttp(two)), packed(two), heard, packed(by_aiohttp(heard))]
    kw = {"options": ("--realtime", "duplex")}
    return [
        *both("ws-speech-stream", stream),
        *both("ws-speech-whole-clauses", whole),
        Live("ws-speech-error", [by_aiohttp(sspeech(
            [text("It breaks.", "input.text"), Wait("audio.done"), done()], [replace(failed, whole=False)],
            {"samples": 700, "faults": [{"stage": "code2wav", "kind": "error", "at": 1}]}, stream_audio=True))]),
        *both("ws-conversation-two-turns", two),
        Live("ws-conversation-unnamed", [two], named=False),
        Live("ws-conversation-barge-in", [packed(conversation(
            {"samples": 1200, "chunks": 8, "tokens": 8, "talker_ms": 120},
            [*spoken(), Wait("response.audio.delta", 2), *spoken(), Wait("response.done", 2), HEARD],
            [Said("client-cancelled", "server_vad", whole=False, cancel="speech"), vad], alike="gist"))]),
        Live("ws-conversation-error", [by_aiohttp(conversation(
            {"samples": 900, "tokens": 5, "talker_ms": 120, "faults": [{"stage": "talker_ar", "kind": "error", "at": 2}]},
            [*spoken(), Wait("response.done"), HEARD], [Said("server-error", "server_vad", whole=False)], alike="gist"))]),
        *both("ws-transcription", heard),
        Live("ws-speech-left", [leaving(by_aiohttp(sspeech(
            [text("All of it.", "input.text")], [ok], {"samples": 1200, "chunks": 40, "talker_ms": 30}, stream_audio=True)), [Wait("binary", 3)])]),
        Live("ws-mixed", mixed),
        *both("ws-duplex-two-responses", duplex, **kw),
        Live("ws-duplex-fatal", [packed(sduplex([2500] * 6, [replace(failed, whole=False)], "fail_at=2 "))], **kw),
        Live("ws-duplex-two-at-once", [duplex, packed(by_aiohttp(duplex)), stream], **kw),
    ]


LIVE = {"vllm-omni": vllm_live, "sglang-omni": sglang_live}
