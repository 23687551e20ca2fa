"""Encoders of a hub that answers, and of one that does not."""

import hashlib
import json
import threading
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import pytest

from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.source import encoder_content
from tests.data.hub_server import use_hub
from tests.encoders import replicas

COMMIT = "c" * 40
REPOSITORY = "allenai/scibert_scivocab_uncased"


class Hub(BaseHTTPRequestHandler):
    """One repository at one commit; what is asked for is kept."""

    protocol_version = "HTTP/1.1"
    files: replicas.Files
    asked: list[str]
    down = False

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        if self.down:
            return self.send_error(503)
        content, status = b"{}", 404
        name = self.path.partition("?")[0].rpartition("/")[2]
        api = f"/api/models/{REPOSITORY}"
        if self.path.partition("?")[0] in (api, f"{api}/revision/main"):
            siblings = [{"rfilename": file} for file in self.files]
            content = json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode()
            status = 200
        elif self.path.startswith(f"{api}/tree/"):
            entries = [
                {"type": "file", "path": file, "size": len(self.files[file]), "oid": "0"}
                for file in self.files
            ]
            content, status = json.dumps(entries).encode(), 200
        elif name in self.files and f"/{REPOSITORY}/resolve/{COMMIT}/" in self.path:
            content, status = self.files[name], 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET


@pytest.fixture
def hub():
    Hub.files = {**replicas.old_bert(cased=False), "flax_model.msgpack": b"0", "README.md": b"#"}
    Hub.asked, Hub.down = [], False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def load():
    encoder = load_encoder("scibert", ["a", "b"])
    weight = encoder.body.embeddings.word_embeddings.weight[7, 3].item()
    return encoder_content("scibert"), weight, encoder.new_language_model_head


@pytest.fixture
def loaded(hub, tmp_path, monkeypatch):
    """Load where the hub is at its address, in a fork of this process, each time a new one."""
    address = f"http://127.0.0.1:{hub.server_port}"
    use_hub(monkeypatch, tmp_path, address)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", address)

    def in_a_fork():
        with ProcessPoolExecutor(1, get_context("fork")) as pool:
            return pool.submit(load).result()

    return in_a_fork


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_from_a_hub_that_answers_and_then_from_its_cache(loaded):
    content, weight, new_head = found = loaded()
    assert content == {"commit": COMMIT, "weights": "pytorch_model.bin"}
    _, tensors = replicas.bert_tensors(cased=False)
    assert weight == float(tensors["bert.embeddings.word_embeddings.weight"][7, 3])
    assert not new_head
    fetched = {path.rpartition("/")[2] for path in Hub.asked if "/resolve/" in path}
    assert fetched == {"README.md", "config.json", "pytorch_model.bin", "vocab.txt"}
    assert not [path for path in Hub.asked if "refs" in path or "discussions" in path]
    # A hub that does not answer is asked once, not for minutes.
    Hub.asked.clear()
    Hub.down = True
    assert loaded() == found
    assert len([path for path in Hub.asked if "models" in path]) == 1
