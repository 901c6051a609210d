"""tools/ask: what it sends and what it prints, against a small server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Api(BaseHTTPRequestHandler):
    """Knows one model, which answers with the number of tokens asked for."""

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.path == "/v1/completions" and body["model"] == "tiny"
        self.answer({"choices": [{"text": f" ... {body['max_tokens']}"}]} if known else None)

    def answer(self, document: object) -> None:
        self.send_response(200 if document else 404)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/ask", "--url", url, "--tokens", "7", "Once"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_prints_the_model_and_its_answer(url: str) -> None:
    assert ask(url).stdout == "tiny: Once ... 7\n"


@pytest.mark.parametrize(("broken", "reason"), [("{url}/elsewhere", "404"), ("http://127.0.0.1:1", "refused")])
def test_failure_is_one_line(url: str, broken: str, reason: str) -> None:
    result = ask(broken.format(url=url))
    assert result.returncode == 1
    assert result.stderr.startswith("ask: http://127.0.0.1")
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
