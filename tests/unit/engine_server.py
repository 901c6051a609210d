"""A small HTTP server that answers like the engine's API, as far as a test lets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

VLLM_COUNTERS = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} TOTAL
vllm:prompt_tokens_total 7.0
"""
LLAMACPP_COUNTERS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 7
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total TOTAL
"""


class Engine:
    """What the server does: its answers in turn, and the tokens that it counts for each."""

    def __init__(self, texts=("four sparks",), counts=True, body=None, counters=None):
        self.texts, self.counts, self.body = list(texts), counts, body
        self.counters = counters or VLLM_COUNTERS
        self.asked, self.total = [], 100

    def complete(self, request):
        self.asked.append(request)
        if self.body is not None:
            return self.body
        self.total += request["max_tokens"] if self.counts else 0
        text = self.texts[min(len(self.asked), len(self.texts)) - 1]
        return {"choices": [{"text": text}], "usage": {"completion_tokens": request["max_tokens"]}}

    def metrics(self):
        return self.counters.replace("TOTAL", str(float(self.total)))


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """Serve on a free port of loopback; the value is the base address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(engine.metrics().encode())

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(json.dumps(engine.complete(request)).encode())

        def answer(self, body):
            self.send_response(200)
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
