"""What httpx_stream.py and aiohttp_stream.py share: their command line and their requests. Not run by itself."""

import argparse
import json

CHAT = {"model": "m", "stream": True, "modalities": ["text", "audio"], "messages": [{"role": "user", "content": "Hi."}]}
SPEECH = {"model": "m", "voice": "alloy", "input": "Hi.", "stream": True, "stream_format": "audio", "response_format": "pcm"}
DEFAULT = [("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/audio/speech", SPEECH), ("GET", "/health", None),
           ("POST", "/v1/chat/completions", {**CHAT, "stream": False})]


def step(text: str) -> tuple:
    """'METHOD PATH [JSON]'"""
    method, path, *body = text.split(" ", 2)
    return method, path, json.loads(body[0]) if body else None


def parse(doc: str):
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base", required=True)
    ap.add_argument("--step", action="append", type=step, help="'METHOD PATH [JSON]'; repeatable; default: chat, speech, health, chat")
    ap.add_argument("--prefix", help="send X-Request-Id PREFIX-0, PREFIX-1, …")
    ap.add_argument("--stop-after", type=int, help="leave the last answer after so many bytes")
    ap.add_argument("--timeout", type=float, default=60)
    a = ap.parse_args()
    a.step = a.step or DEFAULT
    a.base = a.base.rstrip("/")
    return a


def request(a, n: int) -> tuple:
    """(method, path, body bytes or None, headers, bytes after which to leave or None) of step n."""
    method, path, body = a.step[n]
    headers = {"content-type": "application/json"} if body is not None else {}
    if a.prefix:
        headers["X-Request-Id"] = f"{a.prefix}-{n}"
    last = n == len(a.step) - 1
    return method, path, None if body is None else json.dumps(body).encode(), headers, a.stop_after if last else None
