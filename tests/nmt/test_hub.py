"""Ids of the Hugging Face Hub: a small Hub on loopback, its cache, and what is said where neither helps."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from simnmt.nmt.hub import is_hub_id, model_path
from tests.command_line import ROOT
from tests.nmt.pretrained_folders import t5_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the only model of the Hub, with some that no one needs."""
    folder = t5_folder(tmp_path_factory.mktemp("hub") / "t5")
    (folder / "pytorch_model.bin").write_bytes(b"not needed beside safetensors")
    (folder / "modeling_mine.py").write_text("raise SystemExit('the code was run')")
    return folder


class Hub:
    """Answers as the Hub does for `me/tiny-t5` and the gated `me/gated`; every other model is unknown."""

    def __init__(self, shelf: Path) -> None:
        self.asked: list[str] = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(body=True)

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def _answer(self, body: bool) -> None:
                path = unquote(self.path.partition("?")[0])
                hub.asked.append(path)
                if "me/gated" in path:
                    return self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
                if re.fullmatch(r"/api/models/me/tiny-t5(/revision/main)?", path):
                    names = [{"rfilename": file.name} for file in sorted(shelf.iterdir())]
                    told = {"_id": "1", "id": "me/tiny-t5", "modelId": "me/tiny-t5", "sha": COMMIT, "siblings": names}
                    return self._send(200, json.dumps(told).encode(), {}, body)
                if re.fullmatch(r"/api/models/me/tiny-t5/tree/.*", path):
                    rows = [
                        {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": _digest(file)}
                        for file in sorted(shelf.iterdir())
                    ]
                    return self._send(200, json.dumps(rows).encode(), {}, body)
                match = re.fullmatch(r"/me/tiny-t5/resolve/[^/]+/(.+)", path)
                if match and (shelf / match[1]).is_file():
                    file = shelf / match[1]
                    heads = {"X-Repo-Commit": COMMIT, "ETag": f'"{_digest(file)}"'}
                    return self._send(200, file.read_bytes(), heads, body)
                code = "EntryNotFound" if "me/tiny-t5" in path else "RepoNotFound"
                return self._send(404, b"{}", {"X-Error-Code": code}, body)

            def _send(self, status: int, content: bytes, heads: dict[str, str], body: bool) -> None:
                self.send_response(status)
                for name, value in (heads | {"Content-Length": str(len(content))}).items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def _digest(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def hub(shelf: Path) -> Iterator[Hub]:
    hub = Hub(shelf)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def resolve(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Prints the path of a model in a process with a cache of its own, where the Hub is at `url`; returns output and errors."""

    def run(model: str, url: str, **variables: str) -> tuple[str, str]:
        code = (
            "import sys\nfrom simnmt.nmt.hub import model_path\nfrom simnmt.nmt.errors import NmtError\n"
            "try: print(model_path(sys.argv[1]))\nexcept NmtError as error: print(error, file=sys.stderr)\n"
            "assert 'torch' not in sys.modules"
        )
        own = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        done = subprocess.run(
            [sys.executable, "-c", code, model], env=inherited | own | variables, text=True, capture_output=True, cwd=tmp_path,
            timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.strip(), done.stderr

    return run


NOWHERE = "http://127.0.0.1:9"
"""Where nothing listens."""


def test_an_id_is_downloaded_once_and_then_found_in_the_cache_without_a_network(
    hub: Hub, shelf: Path, resolve: Callable[..., tuple[str, str]]
) -> None:
    out, err = resolve("me/tiny-t5", hub.url)
    assert err == ""
    assert (Path(out) / "model.safetensors").read_bytes() == (shelf / "model.safetensors").read_bytes()
    assert {file.name for file in Path(out).iterdir()} == {
        file.name for file in shelf.iterdir() if file.name not in ("pytorch_model.bin", "modeling_mine.py")
    }
    assert resolve("me/tiny-t5", NOWHERE) == (out, "")
    assert resolve("me/tiny-t5", NOWHERE, HF_HUB_OFFLINE="1") == (out, "")


@pytest.mark.parametrize(
    ("model", "reachable", "message"),
    [
        ("me/tiny-t6", True, "no model me/tiny-t6 on the Hugging Face Hub, and no such folder here (check the id"),
        ("me/gated", True, "me/gated: the Hugging Face Hub asks you to accept its terms first (accept them on"),
        ("me/tiny-t5", False, "me/tiny-t5 is not in the cache of the Hugging Face Hub, "),
        ("me/tiny--t5", True, "me/tiny--t5 is no id of the Hugging Face Hub, and no such folder is here (check it)"),
    ],
    ids=["unknown", "gated", "no network", "no id"],
)
def test_an_id_that_cannot_be_had_is_refused_in_one_line(
    hub: Hub, resolve: Callable[..., tuple[str, str]], model: str, reachable: bool, message: str
) -> None:
    out, err = resolve(model, hub.url if reachable else NOWHERE)
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_names_files_and_folders_come_before_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    assert [model_path(name) for name in ("gru", "mine/model", "no/such/file.yaml", "blistm", "")] == [
        "gru", "mine/model", "no/such/file.yaml", "blistm", "",
    ]  # fmt: skip
    assert is_hub_id("Helsinki-NLP/opus-mt-de-en")
    assert not any(map(is_hub_id, ("gru", "../model", "models/small.yaml", "a/b/c", "/tmp/x", "a/")))
