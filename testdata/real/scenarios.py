"""What drive.py does with each real server: one Scenario a client visit. Data only; the code is in visit.py."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Callable

from visit import (Step, aiohttp_steps, curl, httpx_parallel, httpx_steps, occupied, openai_chat, openai_speech,
                   openai_transcription, plain_socket)


@dataclass
class Scenario:
    name: str
    job: Callable
    # For each exchange what the engine handed out: "whole" or "prefix" (both compared), "any" (it took the request, no
    # comparison), None (it never saw it), a number (it saw so many requests, no comparison).
    truth: list
    ordered: bool = True  # False: text and audio come from two processes, only the order of each is fixed
    cut: bool = False  # the client leaves, so only what came before is compared
    named: bool = True  # with an X-Request-Id on each request
    states: dict = field(default_factory=dict)  # exchange number -> the terminal states that are right
    options: tuple = ()  # of the server; each distinct tuple starts a server of its own
    audible: bool = False  # check the first audible sample too
    view: bool = True  # compare what the client's interface gave
    loose: bool = False  # the server itself answers now so, now so: compare nothing, check only the record's head and state


CHAT, SPEECH, BATCH = "/v1/chat/completions", "/v1/audio/speech", "/v1/audio/speech/batch"
WHOLE = ["whole"]


# -- vLLM-Omni ------------------------------------------------------------------------------------
def say(words: str, script: dict) -> str:
    return f"{words} #fake{json.dumps(script)}" if script else words


def vchat(words: str, script: dict | None = None, **body) -> dict:
    """A streamed chat; a key of None leaves the field out."""
    d = {"model": "fake-omni", "stream": True, "modalities": ["text", "audio"],
         "messages": [{"role": "user", "content": say(words, script or {})}], **body}
    return {k: v for k, v in d.items() if v is not None}


def vspeech(words: str, script: dict | None = None, **body) -> dict:
    return {"model": "fake-omni", "voice": "alloy", "input": say(words, script or {}), **body}


RAW = {"stream_format": "audio", "response_format": "pcm"}
SSE = {"stream": True, "response_format": "pcm"}
UPLOAD = base64.b64encode(bytes(range(256)) * 6144).decode()  # 2 MiB of base64


def vupload(words: str) -> dict:
    return vchat("", messages=[{"role": "user", "content": [
        {"type": "text", "text": say(words, {"chunks": 2})},
        {"type": "input_audio", "input_audio": {"data": UPLOAD, "format": "wav"}}]}])


def vllm_chat() -> list[Scenario]:
    long = {"samples": [19200] * 13 + [48000], "gap_ms": 5, "text": [f"w{i} " for i in range(30)]}
    breaks = {"fault": "error", "fault_after": 6}
    return [
        Scenario("chat-text-audio", openai_chat(vchat("Say hello.", stream_options={"include_usage": True})), WHOLE),
        Scenario("chat-unnamed", openai_chat(vchat("Say hello.", {"chunks": 2})), WHOLE, named=False),
        Scenario("chat-modalities-omitted", openai_chat(vchat(
            "Hi.", {"rate": 16000, "samples": [160, 1601, 3199, 7], "start": 5000}, modalities=None)), WHOLE),
        Scenario("chat-audio-only", openai_chat(vchat("Speak.", modalities=["audio"])), WHOLE),
        Scenario("chat-text-only", openai_chat(vchat("Write.", modalities=["text"])), WHOLE),
        Scenario("chat-pcm", openai_chat(vchat("Speak.", {"samples": [300, 300, 2400]}, audio={"format": "pcm"})), WHOLE),
        Scenario("chat-lead-silence", openai_chat(vchat(
            "Breathe in.", {"lead_silence": 6000, "samples": [480, 4000, 4000, 2400]})), WHOLE, audible=True),
        Scenario("chat-empty-audio", openai_chat(vchat(
            "Hm.", {"empty_at": [0], "zero_at": [2], "final": "empty", "samples": [2400] * 4})), WHOLE),
        Scenario("chat-tiny-first-chunk", openai_chat(vchat(
            "Quick.", {"samples": [120, 300, 2400], "order": "audio_first", "text": ["ok"]})), WHOLE),
        Scenario("chat-not-ascii", httpx_steps(Step(CHAT, vchat(
            "Sprich.", {"text": ["na\u00efve ", "\u65e5\u672c", "\u2028", " \U0001f600"], "chunks": 2}))), WHOLE),
        Scenario("chat-long", plain_socket(Step(CHAT, vchat("Tell a story.", long))), WHOLE),
        Scenario("chat-aiohttp", aiohttp_steps(Step(CHAT, vchat("Say hello."))), WHOLE),
        Scenario("chat-curl", curl(Step(CHAT, vchat("Say hello."))), WHOLE),
        Scenario("chat-http10", curl(Step(CHAT, vchat("Say hello.", {"chunks": 2})), options=("--http1.0",)), WHOLE),
        Scenario("chat-byte-by-byte", plain_socket(Step(CHAT, vchat("Slow hand.", {"chunks": 2})), byte_by_byte=True), WHOLE),
        Scenario("chat-parallel", httpx_parallel(4, Step(CHAT, vchat("Together.", {"chunks": 3}))), WHOLE * 4),
        Scenario("chat-pipelined", plain_socket(Step(CHAT, vchat("One.", {"chunks": 2})),
                                                Step(CHAT, vchat("Two.", {"chunks": 1, "start": 700})), together=True), WHOLE * 2),
        Scenario("chat-error-midstream", httpx_steps(Step(CHAT, vchat("Break.", breaks))), WHOLE),
        Scenario("chat-error-openai", openai_chat(vchat("Break.", breaks)), ["prefix"], cut=True),
        Scenario("chat-stage-error", httpx_steps(Step(CHAT, vchat(
            "Break.", {"fault": "error_output", "fault_after": 2, "order": "text_first"}))), WHOLE),
        Scenario("chat-client-leaves", openai_chat(vchat("Long.", {"chunks": 40, "gap_ms": 30}), stop_after=8), ["prefix"], cut=True),
        Scenario("chat-client-resets", plain_socket(Step(CHAT, vchat("Long.", {"chunks": 40, "gap_ms": 30})),
                                                    reset_after=12000), ["prefix"], cut=True),
        Scenario("chat-half-close", plain_socket(Step(CHAT, vchat("Half.", {"chunks": 2})), half_close=True), [None], view=False, loose=True),
        Scenario("chat-json", openai_chat(vchat("All at once.", {"start": 300}, stream=False)), WHOLE),
        Scenario("chat-json-text", httpx_steps(Step(CHAT, vchat("Write.", stream=False, modalities=["text"]))), WHOLE),
        Scenario("chat-upload-continue", curl(Step(CHAT, vupload("Listen.")),
                                              options=("--http1.1", "-H", "Expect: 100-continue")), WHOLE),
        Scenario("chat-upload-chunked", httpx_steps(Step(CHAT, vchat("In pieces." + " x" * 4000, {"chunks": 2}), chunked=True)), WHOLE),
        Scenario("rejected", httpx_steps(
            Step(CHAT, vchat("x", modalities=["smell"])), Step(CHAT, vchat("x", model="other")),
            Step(CHAT, content=b"{not json"), Step("/v1/nothing", {}), Step("/health", method="GET"),
            Step(SPEECH, {"input": "x", "stream": True, "response_format": "mp3"}),
            Step(SPEECH, {"input": "x", "speed": 9}), Step(SPEECH, {"input": "x", "model": "other"})), [None] * 8),
    ]


def vllm_speech() -> list[Scenario]:
    odd = {"samples": [100, 333, 2400, 2401, 5]}
    both = {"channels": 2, "samples": [480, 1200, 1200]}
    breaks = {"fault": "error", "fault_after": 2}
    return [
        Scenario("speech-wav", openai_speech(vspeech("Read this.", response_format="wav")), WHOLE),
        Scenario("speech-mp3", openai_speech(vspeech("Read this.", response_format="mp3")), WHOLE),
        Scenario("speech-raw-pcm", openai_speech(vspeech("Raw.", odd, **RAW)), WHOLE),
        Scenario("speech-raw-pcm-aiohttp", aiohttp_steps(Step(SPEECH, vspeech("Raw.", odd, **RAW))), WHOLE),
        Scenario("speech-raw-pcm-socket", plain_socket(Step(SPEECH, vspeech("Raw.", odd, **RAW))), WHOLE),
        Scenario("speech-raw-pcm-http10", curl(Step(SPEECH, vspeech("Raw.", odd, **RAW)), options=("--http1.0",)), WHOLE),
        Scenario("speech-raw-lead-silence", curl(Step(SPEECH, vspeech(
            "Breathe.", {"lead_silence": 4800, "samples": [2400] * 4}, **RAW))), WHOLE),
        Scenario("speech-raw-wav", openai_speech(vspeech(
            "Raw.", {"rate": 44100, "samples": 4410}, stream_format="audio", response_format="wav")), WHOLE),
        Scenario("speech-raw-wav-stereo", openai_speech(vspeech("Both.", both, stream_format="audio", response_format="wav")), WHOLE),
        Scenario("speech-raw-error", openai_speech(vspeech("Raw.", breaks, **RAW)), WHOLE),
        Scenario("speech-raw-client-leaves", aiohttp_steps(Step(SPEECH, vspeech(
            "Long.", {"chunks": 40, "gap_ms": 30}, **RAW), stop_after=9000)), ["prefix"], cut=True),
        Scenario("speech-sse-pcm", openai_speech(vspeech("Events.", **SSE)), WHOLE),
        Scenario("speech-sse-wav", openai_speech(vspeech("Events.", {"rate": 16000}, stream=True, response_format="wav")), WHOLE),
        Scenario("speech-sse-wav-stereo", openai_speech(vspeech("Both.", both, stream=True, response_format="wav")), WHOLE),
        Scenario("speech-sse-error", httpx_steps(Step(SPEECH, vspeech("Events.", breaks, **SSE))), WHOLE),
        Scenario("speech-batch", httpx_steps(Step(BATCH, {"model": "fake-omni", "task_type": "VoiceDesign", "instructions": "calm",
                                                          "items": [{"input": "One."}, {"input": "Two."}]})), [2]),
        # Without a task the fake model has no voice: 200, and every item says so.
        Scenario("speech-batch-failed", httpx_steps(Step(BATCH, {"model": "fake-omni", "items": [{"input": "One."}]})), [0],
                 states={0: {"invalid-output", "server-error"}}),
        Scenario("speech-curl-two", curl(Step(SPEECH, vspeech("One.", {"chunks": 2}, **RAW)),
                                         Step(SPEECH, vspeech("Two.", {"chunks": 2, "start": 999}, response_format="wav"))), WHOLE * 2),
        Scenario("keep-alive", httpx_steps(
            Step(CHAT, vchat("One.", {"chunks": 2})), Step(SPEECH, vspeech("Two.", {"chunks": 2}, **RAW)),
            Step("/v1/models", method="GET"), Step(CHAT, vchat("Three.", {"chunks": 1}, stream=False)),
            Step("/health", method="GET"), Step(SPEECH, vspeech("Four.", {"chunks": 2}, **SSE))),
            ["whole", "whole", None, "whole", None, "whole"]),
        Scenario("head", curl(Step("/health", method="HEAD"), Step("/v1/models", method="HEAD"), head=True), [None] * 2),
        Scenario("early-answer", plain_socket(Step("/v1/nothing", {"a": 1}), Step("/v1/models", method="GET"), late_body=True), [None] * 2),
        Scenario("plain-get", curl(Step("/v1/models", method="GET"), Step("/v1/audio/voices", method="GET")), [None] * 2),
    ]


# -- SGLang-Omni ----------------------------------------------------------------------------------
def toy(settings: dict) -> dict:
    return {"stage_params": {"toy": settings}}


def schat(settings: dict | None = None, **body) -> dict:
    return {"model": "toy-omni", "stream": True, "modalities": ["text", "audio"],
            "messages": [{"role": "user", "content": "Say a short sentence."}], **toy(settings or {}), **body}


def sspeech(settings: dict | None = None, **body) -> dict:
    return {"model": "toy-omni", "voice": "default", "input": "The relay hears every sample.", **toy(settings or {}), **body}


PCM = {"stream": True, "response_format": "pcm"}
EVENTS = {"stream": True, "stream_format": "sse", "response_format": "pcm"}


def fault(stage: str, kind: str, at: int, **more) -> dict:
    return {"faults": [{"stage": stage, "kind": kind, "at": at, **more}]}


def sglang_chat() -> list[Scenario]:
    def chat(name, job, truth=WHOLE, **kw):
        return Scenario(name, job, truth, **{"ordered": False, **kw})

    return [
        chat("chat-text-audio", openai_chat(schat({"samples": [301, 2401, 1999, 2400]}))),
        chat("chat-unnamed", openai_chat(schat({"chunks": 2})), named=False),
        chat("chat-text-only", openai_chat(schat({"tokens": 9, "empty_first": True, "finish": "length"}, modalities=["text"])), ordered=True),
        chat("chat-audio-only", openai_chat(schat({"samples": 1800, "chunks": 2, "tokens": 5, "talker_ms": 60}, modalities=["audio"]))),
        chat("chat-pcm", openai_chat(schat({"samples": 1600, "rate": 16000, "base": 5000}, audio={"format": "pcm"}))),
        chat("chat-pcm16", openai_chat(schat({"samples": 1800, "chunks": 2, "tokens": 4}, audio={"format": "pcm16"}))),
        chat("chat-stereo", openai_chat(schat({"samples": [2400, 2400, 960], "chunks": 3, "rate": 48000, "channels": 2, "tokens": 4}))),
        chat("chat-lead-silence", openai_chat(schat({"samples": 4410, "chunks": 5, "rate": 44100, "lead_silence": 13230})), audible=True),
        chat("chat-terminal-audio", openai_chat(schat({"samples": 1500, "chunks": 3, "stream_audio": False}))),
        chat("chat-slow-stage", openai_chat(schat({"samples": 2400, **fault("code2wav", "slow", 1, ms=900)}))),
        chat("chat-socket", plain_socket(Step(CHAT, schat({"samples": 2400})))),
        chat("chat-aiohttp", aiohttp_steps(Step(CHAT, schat()))),
        chat("chat-curl", curl(Step(CHAT, schat())), view=False),
        chat("chat-http10", curl(Step(CHAT, schat({"tokens": 4}, modalities=["text"])), options=("--http1.0",)), ordered=True),
        chat("chat-parallel", httpx_parallel(4, Step(CHAT, schat({"chunks": 2}))), WHOLE * 4),
        chat("chat-pipelined", plain_socket(*[Step(CHAT, schat({"tokens": 4}, modalities=["text"]))] * 2, together=True), WHOLE * 2, ordered=True),
        chat("chat-error-midstream", httpx_steps(Step(CHAT, schat(
            {"samples": 1200, "tokens": 2, **fault("code2wav", "error", 2, message="vocoder: bad codes")}))), ["prefix"]),
        chat("chat-error-openai", openai_chat(schat(
            {"samples": 1200, "tokens": 2, **fault("code2wav", "error", 2, message="vocoder: bad codes")})), ["prefix"], cut=True),
        chat("chat-client-leaves", openai_chat(schat({"samples": 1200, "chunks": 12, "tokens": 12, "talker_ms": 60}), stop_after=9),
             ["prefix"], cut=True, view=False),
        chat("chat-half-close", plain_socket(Step(CHAT, schat({"tokens": 4}, modalities=["text"])), half_close=True), [None], view=False, loose=True),
        chat("chat-json", openai_chat(schat({"samples": [700, 1500], "chunks": 2, "tokens": 6}, stream=False))),
        chat("chat-json-text", httpx_steps(Step(CHAT, schat({"tokens": 6}, stream=False, modalities=["text"])))),
        chat("chat-upload-continue", curl(Step(CHAT, schat({"chunks": 2}, padding=UPLOAD)),
                                          options=("--http1.1", "-H", "Expect: 100-continue")), view=False),
        chat("chat-upload-chunked", httpx_steps(Step(CHAT, schat({"chunks": 2}, padding="x" * 9000), chunked=True))),
    ]


def sglang_speech() -> list[Scenario]:
    odd = {"samples": [240, 2161, 1999, 2400]}
    return [
        Scenario("speech-wav", curl(Step(SPEECH, sspeech({"samples": [2401, 2399, 100], "chunks": 3}))), WHOLE),
        Scenario("speech-mp3", openai_speech(sspeech(response_format="mp3")), WHOLE),
        Scenario("speech-pcm-whole", openai_speech(sspeech(response_format="pcm")), WHOLE),
        Scenario("speech-raw-pcm", openai_speech(sspeech(odd, **PCM)), WHOLE),
        Scenario("speech-raw-pcm-aiohttp", aiohttp_steps(Step(SPEECH, sspeech(odd, **PCM))), WHOLE),
        Scenario("speech-raw-pcm-socket", plain_socket(Step(SPEECH, sspeech(odd, **PCM))), WHOLE),
        Scenario("speech-raw-pcm-http10", curl(Step(SPEECH, sspeech(odd, **PCM)), options=("--http1.0",)), WHOLE),
        Scenario("speech-raw-lead-silence", curl(Step(SPEECH, sspeech(
            {"samples": 4410, "chunks": 5, "rate": 44100, "lead_silence": 13230}, **PCM))), WHOLE),
        Scenario("speech-raw-large", curl(Step(SPEECH, sspeech(
            {"samples": 38400, "chunks": 13, "rate": 48000, "talker_ms": 5, "vocoder_ms": 5}, **PCM))), WHOLE),
        Scenario("speech-raw-error", openai_speech(sspeech({"samples": 1200, **fault("code2wav", "error", 2)}, **PCM)), ["prefix"]),
        Scenario("speech-raw-client-resets", plain_socket(Step(SPEECH, sspeech(
            {"samples": 1200, "chunks": 12, "talker_ms": 50}, **PCM)), reset_after=5000), ["prefix"], cut=True),
        Scenario("speech-sse", openai_speech(sspeech({"samples": [1111, 1289, 900], "chunks": 3}, stream_format="sse", response_format="pcm")), WHOLE),
        Scenario("speech-sse-error", httpx_steps(Step(SPEECH, sspeech(
            {"samples": 1200, **fault("code2wav", "error", 2, message="vocoder: lost its place")}, **EVENTS))), ["prefix"]),
        Scenario("speech-batch", httpx_steps(Step(BATCH, {"model": "toy-omni", "items": [{"input": "One."}, {"input": "Two."}]})), [2]),
        Scenario("transcription", openai_transcription(model="toy-omni"), WHOLE),
        Scenario("transcription-sse", openai_transcription(model="toy-omni", stream=True), WHOLE),
        Scenario("rejected", httpx_steps(
            Step(SPEECH, sspeech(stream=True)), Step(SPEECH, {"model": "toy-omni", "input": ""}),
            Step(CHAT, {"model": "toy-omni", "messages": "no list"}), Step("/v1/nothing", {}), Step("/metrics", method="GET"),
            Step(SPEECH, sspeech(fault("preprocessing", "error", 0, message="no such speaker"), **PCM))),
            [None] * 5 + ["any"]),
        Scenario("keep-alive", httpx_steps(
            Step(CHAT, schat({"samples": 900, "chunks": 2, "tokens": 5}, modalities=["text"])),
            Step(SPEECH, sspeech({"samples": [333, 2067, 1200], "chunks": 3}, **PCM)), Step("/v1/models", method="GET"),
            Step("/health", method="GET"), Step(SPEECH, sspeech({"chunks": 2}, **EVENTS))),
            ["whole", "whole", None, None, "whole"]),
        Scenario("curl-two", curl(Step(SPEECH, sspeech({"chunks": 2}, **PCM)), Step(SPEECH, sspeech({"chunks": 2}))), WHOLE * 2),
        Scenario("head", curl(Step("/health", method="HEAD"), Step("/v1/models", method="HEAD"), head=True), [None] * 2),
        Scenario("early-answer", plain_socket(Step("/v1/nothing", {"a": 1}), Step("/v1/models", method="GET"), late_body=True), [None] * 2),
        Scenario("plain-get", curl(Step("/v1/models", method="GET"), Step("/v1/audio/voices", method="GET")), [None] * 2),
        Scenario("queue-full", occupied(
            schat({"tokens": 3, "first_text_ms": 3500}, modalities=["text"]), CHAT,
            httpx_steps(Step(CHAT, schat({"tokens": 3})), Step(CHAT, schat({"tokens": 3}, stream=False)), Step(SPEECH, sspeech(**PCM)))),
            [None] * 3, options=("--max-in-flight", "1")),
    ]


SCENARIOS = {"vllm-omni": lambda: vllm_chat() + vllm_speech(), "sglang-omni": lambda: sglang_chat() + sglang_speech()}
