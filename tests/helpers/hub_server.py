"""A small hub on this machine: enough of the real one's protocol for its real client, and faults on demand."""

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LFS_SUFFIXES = (".safetensors", ".parquet")  # large files have a SHA-256 there, the others git's hash


@dataclass
class Repository:
    revision: str
    files: dict[str, bytes]
    token: str | None = None  # gated: only this token is let in


@dataclass
class Fault:
    """What happens to the next `times` requests that match."""

    pattern: str  # of the method and the path
    times: int
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None  # send so many bytes, then close the connection
    hold: bool = False  # ... but only when the server stops
    flip: bool = False  # send other bytes of the same length


@dataclass
class Hub:
    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)  # "owner/name" or "datasets/owner/name"
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  # "METHOD path range"
    stopped: threading.Event = field(default_factory=threading.Event)

    def asked(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """This process's environment with the hub at `endpoint`, its cache in `home`, and no other hub settings."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return {**clean, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), **more}


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag(name: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if name.endswith(LFS_SUFFIXES) else git_hash(content)


def tree(files: dict[str, bytes]) -> list[dict]:
    """The hub's list of a revision's files."""
    rows = []
    for path, content in files.items():
        row = {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}
        if path.endswith(LFS_SUFFIXES):
            row["lfs"] = {"oid": etag(path, content), "size": len(content), "pointerSize": 130}
        rows.append(row)
    return rows


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free port of this machine, until the block ends."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_HEAD(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            line = f"{self.command} {path} {self.headers.get('Range', '')}".strip()
            hub.requests.append(line)
            fault = next((fault for fault in hub.faults if fault.times and re.search(fault.pattern, line)), None)
            if fault:
                fault.times -= 1
            if fault and fault.status:
                return self.reply(fault.status, b"", fault.headers)
            found = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)", path)
            if found:
                kind, repo, revision = found.groups()
                return self.listed(repo if kind == "models" else f"datasets/{repo}", revision)
            found = re.fullmatch(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            if found:
                return self.file(*found.groups(), fault)
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})

        def refused(self, name: str, revision: str) -> bool:
            """Refuse what is missing or closed to this client; return whether it was refused."""
            repository = hub.repositories.get(name)
            if repository is None:
                self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
            elif repository.token and "authorization" not in self.headers:
                self.reply(401, b"", {"X-Error-Code": "GatedRepo"})
            elif repository.token and self.headers["authorization"] != f"Bearer {repository.token}":
                self.reply(403, b"", {"X-Error-Code": "GatedRepo"})
            elif revision != repository.revision:
                self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
            else:
                return False
            return True

        def listed(self, name: str, revision: str) -> None:
            if not self.refused(name, revision):
                self.reply(200, json.dumps(tree(hub.repositories[name].files)).encode(), {})

        def file(self, name: str, revision: str, path: str, fault: Fault | None) -> None:
            if self.refused(name, revision):
                return
            content = hub.repositories[name].files.get(path)
            if content is None:
                return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})
            headers = {"ETag": f'"{etag(path, content)}"', "X-Repo-Commit": revision, "Accept-Ranges": "bytes"}
            start = int(re.match(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            body = bytes(byte ^ 1 for byte in content) if fault and fault.flip else content
            self.reply(206 if start else 200, body[start:], headers, fault)

        def reply(self, status: int, body: bytes, headers: dict[str, str], fault: Fault | None = None) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[: fault.cut_after] if fault else body)
            if fault and fault.cut_after is not None:
                self.wfile.flush()
                self.close_connection = True
                if fault.hold:
                    hub.stopped.wait()

        def log_message(self, *arguments: object) -> None:
            """The tests read `hub.requests`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
