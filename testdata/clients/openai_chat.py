"""The openai client's chat against any base URL; prints one JSON object of what it got.

    PYTHON openai_chat.py --base http://127.0.0.1:PORT [--modalities text,audio] [--no-stream] [--stop-after N]

{"text", "audio_bytes", "sha256", "chunks", "finish", "id", "error"}: audio as decoded from base64, each event's payload
as it came (a WAV header stays in); chunks counts events. An error of the client is a value, not an exit code.
It retries nothing and checks nothing.
"""

import argparse
import base64
import hashlib
import json


def audio_of(event: dict, choice: dict) -> str | None:
    """base64 of an event: in delta.audio.data, or in delta.content beside modality "audio"."""
    d = choice.get("delta") or choice.get("message") or {}
    if (d.get("audio") or {}).get("data"):
        return d["audio"]["data"]
    return d.get("content") if event.get("modality") == "audio" else None


def take(event: dict, out: dict, audio: bytearray) -> None:
    out["chunks"] += 1
    out["id"] = out["id"] or event.get("id")
    for c in event.get("choices") or []:
        b64 = audio_of(event, c)
        if b64:
            audio += base64.b64decode(b64)
        elif event.get("modality") != "audio":
            d = c.get("delta") or c.get("message") or {}
            out["text"] += d.get("content") or (d.get("audio") or {}).get("transcript") or ""
        out["finish"] = c.get("finish_reason") or out["finish"]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base", required=True, help="without /v1")
    ap.add_argument("--model", default="m")
    ap.add_argument("--text", default="Say hello.")
    ap.add_argument("--modalities", default="text,audio", help="empty leaves the field out")
    ap.add_argument("--extra", default="{}", help="JSON: further body fields")
    ap.add_argument("--request-id", help="sent as X-Request-Id")
    ap.add_argument("--no-stream", action="store_true")
    ap.add_argument("--stop-after", type=int, help="leave the stream after so many events")
    ap.add_argument("--timeout", type=float, default=60)
    a = ap.parse_args()

    import openai

    out = {"text": "", "audio_bytes": 0, "sha256": None, "chunks": 0, "finish": None, "id": None, "error": None}
    audio = bytearray()
    body = {"model": a.model, "stream": not a.no_stream, "messages": [{"role": "user", "content": a.text}],
            "extra_body": json.loads(a.extra),
            "extra_headers": {"X-Request-Id": a.request_id} if a.request_id else None}
    if a.modalities:
        body["modalities"] = a.modalities.split(",")
    with openai.OpenAI(base_url=a.base.rstrip("/") + "/v1", api_key="none", max_retries=0, timeout=a.timeout) as client:
        try:
            answer = client.chat.completions.create(**body)
            for event in [answer] if a.no_stream else answer:
                take(event.model_dump(), out, audio)
                if a.stop_after and out["chunks"] >= a.stop_after:
                    answer.close()
                    break
        except Exception as e:  # openai's errors, and httpx's where a stream is cut
            out["error"] = f"{type(e).__name__}: {e}"
    out["audio_bytes"], out["sha256"] = len(audio), hashlib.sha256(audio).hexdigest()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
