"""A small stand-in for the Hub on the loopback interface: the listing, and files with the headers that `hf` reads.

Large files carry their SHA-256 as the real one's do; `cut` ends answers after so many bytes, as a broken line does.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = ".safetensors"


class Hub(ThreadingHTTPServer):
    """Repositories by "name@revision", each {file: bytes}. `token` is what must be sent, if anything."""

    daemon_threads = True

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]], token: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repos, self.token, self.cut, self.asked = repos, token, 0, []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(repos: Mapping[str, Mapping[str, bytes]], token: str = "") -> Iterator[Hub]:
    hub = Hub(repos, token)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


def tree(files: Mapping[str, bytes]) -> list[dict]:
    """The listing in the words of the real one's API."""
    rows = []
    for name, content in files.items():
        row = {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
        if name.endswith(LARGE):
            sha256 = hashlib.sha256(content).hexdigest()
            row["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
        rows.append(row)
    return rows


class Answer(BaseHTTPRequestHandler):
    """GET /api/models/<repo>/tree/<revision> and HEAD or GET /<repo>/resolve/<revision>/<file>."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.send(401, b"no", body)
        elif path.startswith("/api/models/") and "/tree/" in path:
            repo, _, revision = path.removeprefix("/api/models/").partition("/tree/")
            self.send_tree(f"{repo}@{revision}", body)
        elif "/resolve/" in path:
            repo, _, rest = path.lstrip("/").partition("/resolve/")
            revision, _, name = rest.partition("/")
            self.send_file(f"{repo}@{revision}", revision, name, body)
        else:
            self.send(404, b"no", body)

    def send_tree(self, repo: str, body: bool) -> None:
        if repo not in self.server.repos:
            return self.send(404, b"{}", body, {"X-Error-Code": "RevisionNotFound"})
        return self.send(200, json.dumps(tree(self.server.repos[repo])).encode(), body)

    def send_file(self, repo: str, revision: str, name: str, body: bool) -> None:
        content = self.server.repos.get(repo, {}).get(name)
        if content is None:
            return self.send(404, b"no", body, {"X-Error-Code": "EntryNotFound"})
        digest = hashlib.sha256 if name.endswith(LARGE) else hashlib.sha1
        headers = {"X-Repo-Commit": revision, "ETag": f'"{digest(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        start = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        first = int(start or 0)
        if first and body:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            return self.send(206, content[first:], body, headers)
        return self.send(200, content, body, headers)

    def send(self, code: int, content: bytes, body: bool, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if not body:
            return
        cut = self.server.cut
        if cut and len(content) > cut:
            self.wfile.write(content[:cut])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
        else:
            self.wfile.write(content)
