"""A small HTTP server that answers like the engine's API, as far as a test lets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

LLAMACPP_COUNTERS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 7
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total TOTAL
"""


class Engine:
    """What the server does: its answers in turn, and the tokens that it counts for each.

    `chats` are its answers to questions, `key` the one that it asks for, `guesses` the accepted tokens by position of
    each answer, `whole` whether a stream has its end. One that is `broken` answers with an error. `counters` are its
    metrics, unless they are vLLM's.
    """

    def __init__(self, texts=("four sparks",), counts=True, body=None, chats=(), key=None, guesses=(), counters=""):
        self.texts, self.counts, self.body, self.chats, self.key = list(texts), counts, body, list(chats), key
        self.guesses, self.broken, self.whole = guesses, False, True
        self.asked, self.total, self.drafts, self.running, self.counters = [], 100, 0, 0, counters

    def complete(self, request):
        self.asked.append(request)
        if self.body is not None:
            return self.body
        self.total += request["max_tokens"] if self.counts else 0
        self.drafts += 10
        if "messages" in request:
            return {"choices": [{"message": {"content": self.chats.pop(0), "reasoning_content": None}}]}
        text = self.texts[min(len(self.asked), len(self.texts)) - 1]
        return {"choices": [{"text": text}], "usage": self.usage(request)}

    def usage(self, request):
        return {"completion_tokens": request["max_tokens"], "prompt_tokens": len(request["prompt"].split())}

    def stream(self, request):
        """The events of a streamed answer, a token each."""
        answer = self.complete(request)
        for _ in range(request["max_tokens"]):
            yield json.dumps({"choices": [{"text": "x"}]})
        yield json.dumps({"choices": [], "usage": answer["usage"]})
        if self.whole:
            yield "[DONE]"

    def post(self, request, access):
        """The body and the status of what is answered."""
        if self.key and access != f"Bearer {self.key}":
            return b'{"error": "Unauthorized"}', 401
        if self.broken:
            return b'{"error": "EngineCore encountered an issue"}', 500
        if request.get("stream"):
            return "".join(f"data: {data}\n\n" for data in self.stream(request)).encode(), 200
        return json.dumps(self.complete(request)).encode(), 200

    def metrics(self):
        if self.counters:
            return self.counters.replace("TOTAL", str(self.total))
        guessed = "".join(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{n}"}} {self.drafts * rate}\n'
            for n, rate in enumerate(self.guesses)
        )
        return (
            "# HELP vllm:generation_tokens_total Number of generation tokens processed.\n"
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {float(self.total)}\n'
            "vllm:prompt_tokens_total 7.0\n"
            f'vllm:num_requests_running{{engine="0",model_name="tiny"}} {float(self.running)}\n'
            f'vllm:spec_decode_num_drafts_total{{engine="0"}} {float(self.drafts)}\n'
            f"{guessed}"
        )


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """Serve on a free port of loopback; the value is the base address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(engine.metrics().encode(), 200)

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(*engine.post(request, self.headers["Authorization"]))

        def answer(self, body, status):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
