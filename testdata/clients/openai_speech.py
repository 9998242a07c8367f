"""The openai client's speech, with_streaming_response, against any base URL; prints one JSON object.

    PYTHON openai_speech.py --base http://127.0.0.1:PORT [--format pcm] [--extra '{"stream_format":"audio"}']

{"status", "bytes", "sha256", "content_type", "pieces", "error"}: pieces counts what the client's iterator gave, which is
no property of the wire. An error of the client is a value, not an exit code.
"""

import argparse
import hashlib
import json


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--base", required=True, help="without /v1")
    ap.add_argument("--model", default="m")
    ap.add_argument("--voice", default="alloy")
    ap.add_argument("--text", default="Say hello.")
    ap.add_argument("--format", default="pcm")
    ap.add_argument("--extra", default="{}", help="JSON: further body fields")
    ap.add_argument("--request-id", help="sent as X-Request-Id")
    ap.add_argument("--stop-after", type=int, help="leave after so many bytes")
    ap.add_argument("--timeout", type=float, default=60)
    a = ap.parse_args()

    import openai

    out = {"status": None, "bytes": 0, "sha256": None, "content_type": None, "pieces": 0, "error": None}
    sha = hashlib.sha256()
    with openai.OpenAI(base_url=a.base.rstrip("/") + "/v1", api_key="none", max_retries=0, timeout=a.timeout) as client:
        try:
            with client.audio.speech.with_streaming_response.create(
                    model=a.model, voice=a.voice, input=a.text, response_format=a.format, extra_body=json.loads(a.extra),
                    extra_headers={"X-Request-Id": a.request_id} if a.request_id else None) as r:
                out["status"], out["content_type"] = r.status_code, r.headers.get("content-type")
                for piece in r.iter_bytes():
                    sha.update(piece)
                    out["bytes"] += len(piece)
                    out["pieces"] += 1
                    if a.stop_after and out["bytes"] >= a.stop_after:
                        break
        except Exception as e:  # openai's errors, and httpx's where a stream is cut
            out["error"] = f"{type(e).__name__}: {e}"
            out["status"] = out["status"] or getattr(e, "status_code", None)
    out["sha256"] = sha.hexdigest()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
