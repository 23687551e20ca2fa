"""Encoders of a hub that answers, and of one that does not."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.encoders import replicas

COMMIT = "c" * 40
REPOSITORY = "allenai/scibert_scivocab_uncased"
PROGRAM = """
import json, sys
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.source import encoder_content
encoder = load_encoder("scibert", ["a", "b"])
weight = float(encoder.body.embeddings.word_embeddings.weight[7, 3])
print(json.dumps([encoder_content("scibert"), weight, encoder.new_language_model_head]))
"""


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


def loaded(address, home):
    """What the program prints where the hub is at that address, and nothing says it is offline."""
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home)}
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        environment.pop(name, None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_from_a_hub_that_answers_and_then_from_its_cache(hub, tmp_path):
    address = f"http://127.0.0.1:{hub.server_port}"
    content, weight, new_head = found = loaded(address, tmp_path)
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
    assert loaded(address, tmp_path) == found
    assert len([path for path in Hub.asked if "models" in path]) == 1
