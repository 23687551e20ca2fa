"""A small hub of data sets on the loopback address, and caches of its libraries in a folder."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import datasets
import huggingface_hub
import pytest

_API = re.compile(
    r"/api/datasets/(?P<id>[^/]+/[^/]+)(/(?P<what>revision|tree|paths-info)"
    r"/(?P<revision>refs/convert/parquet|[^/]+)(/(?P<path>.*))?)?"
)
_FILE = re.compile(
    r"/datasets/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>refs/convert/parquet|[^/]+)/(?P<path>.*)"
)


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Answers for the repositories ``OWNER--NAME`` and ``OWNER--NAME@refs--convert--parquet``."""

    protocol_version = "HTTP/1.1"
    repositories: Path

    def log_message(self, *args: object) -> None:
        pass

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        found = _API.fullmatch(path) or _FILE.fullmatch(path)
        if found is None:
            return self._reply(404, X_Error_Code="EntryNotFound")
        name = found["id"].replace("/", "--")
        revision = found["revision"] or "main"
        folder = next(
            (one for one in self.repositories.glob(f"{name}*") if self._has(one, name, revision)),
            None,
        )
        if folder is None:
            known = (self.repositories / name).is_dir()
            code = "RevisionNotFound" if known else "RepoNotFound"
            return self._reply(404 if known else 401, b"{}", X_Error_Code=code)
        files = sorted(one for one in folder.rglob("*") if one.is_file())
        if found.re is _FILE:
            return self._file(folder / found["path"], self._commit(folder))
        if found["what"] == "paths-info":
            fields = parse_qs(body.decode()) if b"=" in body else json.loads(body)
            wanted = [folder / one for one in fields["paths"]]
            entries = [self._entry(one, folder) for one in wanted if one.exists()]
        elif found["what"] == "tree":
            inner = folder / (found["path"] or "")
            every = "recursive=true" in self.path.lower()
            if not inner.is_dir():
                return self._reply(404, X_Error_Code="EntryNotFound")
            listed = sorted(inner.rglob("*") if every else inner.iterdir())
            entries = [self._entry(one, folder) for one in listed]
        else:
            siblings = [{"rfilename": str(one.relative_to(folder))} for one in files]
            entries = {"id": found["id"], "sha": self._commit(folder), "private": False}
            entries |= {"gated": False, "tags": [], "siblings": siblings}
        self._reply(200, json.dumps(entries).encode(), Content_Type="application/json")

    do_GET = do_HEAD = do_POST = _answer

    def _commit(self, folder: Path) -> str:
        return _digest(folder.name.encode())

    def _has(self, folder: Path, name: str, revision: str) -> bool:
        named = folder.name.removeprefix(name).replace("--", "/") or "@main"
        return named.startswith("@") and revision in (named[1:], self._commit(folder))

    def _entry(self, path: Path, folder: Path) -> dict[str, Any]:
        content = path.read_bytes() if path.is_file() else b""
        kind = "file" if path.is_file() else "directory"
        name = str(path.relative_to(folder))
        return {"type": kind, "oid": _digest(content), "size": len(content), "path": name}

    def _file(self, path: Path, commit: str) -> None:
        if not path.is_file():
            return self._reply(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        content = path.read_bytes()
        headers = {"ETag": f'"{_digest(content)}"', "X_Repo_Commit": commit}
        if part := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            content = content[int(part[1]) : int(part[2] or len(content)) + 1]
            return self._reply(206, content, **headers)
        self._reply(200, content, **headers)


@contextmanager
def serve(repositories: Path) -> Iterator[str]:
    """Serve a folder of repositories; yield the address."""
    handler = type("Handler", (_Handler,), {"repositories": repositories})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def use_hub(patch: pytest.MonkeyPatch, home: Path, address: str | None) -> None:
    """Let the hub's libraries have their caches in ``home``; without an address, offline."""
    constants, config = huggingface_hub.constants, datasets.config
    for module in (constants, config):
        patch.setattr(module, "HF_HUB_OFFLINE", address is None)
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    patch.setattr(config, "HF_DATASETS_CACHE", home / "datasets")
    if address is not None:
        patch.setattr(constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(config, "HF_ENDPOINT", address)
