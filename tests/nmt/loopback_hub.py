"""A small Hugging Face Hub on loopback, with one model."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Answers as the Hub does for `me/tiny-model` and the gated `me/gated`; every other model is unknown."""

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

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
                if re.fullmatch(r"/api/models/me/tiny-model(/revision/main)?", path):
                    names = [{"rfilename": name} for name in _names(shelf)]
                    told = {"_id": "1", "id": "me/tiny-model", "modelId": "me/tiny-model", "sha": COMMIT, "siblings": names}
                    return self._send(200, json.dumps(told).encode(), {}, body)
                if re.fullmatch(r"/api/models/me/tiny-model/tree/.*", path):
                    rows = [
                        {"type": "file", "path": name, "size": (shelf / name).stat().st_size, "oid": _digest(shelf / name)}
                        for name in _names(shelf)
                    ]
                    return self._send(200, json.dumps(rows).encode(), {}, body)
                match = re.fullmatch(r"/me/tiny-model/resolve/[^/]+/(.+)", path)
                if match and (shelf / match[1]).is_file():
                    file = shelf / match[1]
                    heads = {"X-Repo-Commit": COMMIT, "ETag": f'"{_digest(file)}"'}
                    return self._send(200, file.read_bytes(), heads, body)
                code = "EntryNotFound" if "me/tiny-model" in path else "RepoNotFound"
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


def _names(shelf: Path) -> list[str]:
    return sorted(file.relative_to(shelf).as_posix() for file in shelf.rglob("*") if file.is_file())


def _digest(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
