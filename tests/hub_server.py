"""A small HTTP server that speaks as much of the Hugging Face hub's API as a pull needs, with faults on demand.

Two ports: the hub itself, and the CDN that it redirects file requests to. Both record what they were asked.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """Files by path. `sha256` and `sizes` override what the listing says of a file.

    A private repository is there for those with a token only; of a gated one, everybody sees the list of files.
    """

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    sha256: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    plain: bool = False  # files are not in LFS: the listing has no sha256


@dataclass
class Faults:
    """What the CDN does wrong; each entry is used up by one request."""

    drop_after: list[int] = field(default_factory=list)  # closes the connection after so many bytes of the body
    status: list[int] = field(default_factory=list)  # answers with this status
    ignore_range: bool = False
    wrong_range: bool = False
    redirect_to: str = ""  # the hub redirects there instead
    wait: threading.Event | None = None  # the body's second half waits for this


@dataclass
class Seen:
    """One request."""

    server: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class Hub:
    """The running server. Set `token` to accept only that one."""

    repos: dict[str, Repo]
    faults: Faults = field(default_factory=Faults)
    token: str | None = None
    prefix: str = ""
    listing_status: int = 200
    listing_body: bytes | None = None
    seen: list[Seen] = field(default_factory=list)
    endpoint: str = ""
    cdn: str = ""

    def asked(self, server: str) -> list[Seen]:
        return [request for request in self.seen if request.server == server]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    name: str
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _note(self) -> None:
        self.hub.seen.append(Seen(self.name, self.path, self.headers.get("Range"), self.headers.get("Authorization")))

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _HubHandler(_Handler):
    name = "hub"

    def do_GET(self) -> None:
        self._note()
        path = urlsplit(self.path).path.removeprefix(self.hub.prefix)
        if listing := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            self._list(listing[1])
        elif file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(file[1], file[2], file[3])
        else:
            self.answer(404)

    def _refused(self, name: str) -> bool:
        repo = self.hub.repos.get(name)
        authorization = self.headers.get("Authorization")
        if self.hub.token and authorization and authorization != f"Bearer {self.hub.token}":
            self.answer(401, headers={"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repo is None or (repo.private and not authorization):
            # The hub does not tell strangers whether a repository exists.
            self.answer(404 if authorization else 401, headers={"X-Error-Code": "RepoNotFound"})
        else:
            return False
        return True

    def _list(self, name: str) -> None:
        if self._refused(name):
            return
        if self.hub.listing_status != 200 or self.hub.listing_body is not None:
            self.answer(self.hub.listing_status, self.hub.listing_body or b"")
            return
        repo = self.hub.repos[name]
        siblings = []
        for path, data in repo.files.items():
            entry: dict[str, object] = {"rfilename": path, "size": repo.sizes.get(path, len(data)), "blobId": "0" * 40}
            if not repo.plain:
                digest = repo.sha256.get(path, hashlib.sha256(data).hexdigest())
                entry["lfs"] = {"sha256": digest, "size": entry["size"], "pointerSize": 130}
            siblings.append(entry)
        document = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
        self.answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        if self._refused(name):
            return
        if self.hub.repos[name].gated and not self.headers.get("Authorization"):
            self.answer(401, headers={"X-Error-Code": "GatedRepo"})
            return
        data = self.hub.repos[name].files.get(path)
        if data is None or revision != COMMIT:
            self.answer(404, headers={"X-Error-Code": "EntryNotFound"})
            return
        self.answer(302, headers={"Location": self.hub.faults.redirect_to or f"{self.hub.cdn}/{name}/{path}?sig=1"})


class _CdnHandler(_Handler):
    name = "cdn"

    def do_GET(self) -> None:
        self._note()
        faults = self.hub.faults
        if faults.status:
            self.answer(faults.status.pop(0))
            return
        owner, name, path = urlsplit(self.path).path[1:].split("/", 2)
        data = self.hub.repos[f"{owner}/{name}"].files[path]
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(wanted[1]) if wanted and not faults.ignore_range else 0
        body = data[start:]
        if start:
            self.send_response(206)
            shown = start + 1 if faults.wrong_range else start
            self.send_header("Content-Range", f"bytes {shown}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if faults.drop_after:
            self.wfile.write(body[: faults.drop_after.pop(0)])
            self.close_connection = True
            return
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if faults.wait is not None:
            faults.wait.wait(30)
        self.wfile.write(body[len(body) // 2 :])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves is part of the tests."""


@contextmanager
def running_hub(repos: dict[str, Repo], prefix: str = "") -> Iterator[Hub]:
    """Serves the repositories until the block ends; HF_ENDPOINT must be set to `hub.endpoint`."""
    hub = Hub(repos, prefix=prefix)
    servers = []
    for handler in (_HubHandler, _CdnHandler):
        server = _Server(("127.0.0.1", 0), type(handler.__name__, (handler,), {"hub": hub}))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
    hub.endpoint = f"http://127.0.0.1:{servers[0].server_port}{prefix}"
    hub.cdn = f"http://127.0.0.1:{servers[1].server_port}"
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
