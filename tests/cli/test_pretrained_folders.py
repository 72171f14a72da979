"""Folders of OPUS-MT and NLLB: calibrated with torch and CTranslate2, translated, and simulated, all by command."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnmt.profile.device_profile import read_profile
from tests.command_line import Command, assert_one_line
from tests.nmt.pretrained_folders import FOLDERS, LANGUAGES, nllb_folder, text

UNITS = {"opus": "sentencepiece", "nllb": "tokenizers"}
SCENARIO = """\
version: 1
name: {name}
seed: 3
requests: 300
workloads:
  news:
    lengths: {{source: news.de, target: news.en, src_unit: {{{unit}: {name}}}, tgt_unit: {{{unit}: {name}}}}}
networks:
  office: {{rtt: office.csv}}
devices:
  gateway: {{profile: {name}-torch.json}}
  cloud: {{profile: {name}-ctranslate2.json}}
fit: {{inferences: 100}}
policies: {{edge: {{}}, cloud: {{}}, cnmt: {{}}}}
"""


@pytest.mark.deep
@pytest.mark.parametrize("name", UNITS)
def test_a_folder_is_calibrated_translated_and_simulated(folder: Path, simnmt: Command, name: str) -> None:
    FOLDERS[name](folder / name)
    for backend in ("torch", "ctranslate2"):
        out = f"{name}-{backend}.json"
        options = ["--threads", "1", "--quick", "--max-batch", "8", "--part", "execution", "--part", "step", "--out", out]
        done = simnmt("calibrate", "--model", name, "--backend", backend, *options)
        assert done.status == 0, done.err
        profile = read_profile(folder / out)
        assert profile.engine is not None
        assert (profile.engine.backend, profile.engine.weights) == (backend, "checkpoint")
        assert profile.length_unit.src.startswith(f"{UNITS[name]} ")
        assert profile.plane.s_per_tgt_token > 0
    (folder / "news.de").write_text("".join(line + "\n" for line in text("de")[:40]), encoding="utf-8")
    (folder / "news.en").write_text("".join(line + "\n" for line in text("en")[:40]), encoding="utf-8")
    languages = [f"--{side}-lang={code}" for side, code in zip(("src", "tgt"), LANGUAGES.get(name, ()), strict=False)]
    translated = simnmt(
        "nmt", "translate", "--model", name, *languages, "--max-len", "12", "--threads", "1", "--json", "news.de"
    )
    assert translated.status == 0, translated.err
    rows = [json.loads(line) for line in translated.out.splitlines()]
    assert len(rows) == 40 and len({row["text"] for row in rows}) > 1
    (folder / f"{name}.yaml").write_text(SCENARIO.format(name=name, unit=UNITS[name]))
    simulated = simnmt("run", f"{name}.yaml", "--out", "results", "--json")
    assert simulated.status == 0, simulated.err
    shutil.rmtree(folder / name)


VERBS = {
    "calibrate": ("calibrate", "--quick", "--out", "new.json"),
    "translate": ("nmt", "translate", "news.de"),
}
"""Commands that take a model."""


@contextmanager
def unknown_models() -> Iterator[str]:
    """The URL of a Hugging Face Hub on loopback that knows no model."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_id_and_a_folder_with_code_are_one_line_and_the_code_is_never_run(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    from huggingface_hub import constants

    place = nllb_folder(folder / "nllb")
    (place / "mine.py").write_text("raise SystemExit('the code was run')", encoding="utf-8")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "mine.Mine"}}))
    with unknown_models() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        refused = {model: simnmt(*VERBS[verb], "--model", model) for model in ("me/tiny-t6", "nllb")}
    for model, part in (("me/tiny-t6", "simnmt: me/tiny-t6: "), ("nllb", "auto_map")):
        assert (refused[model].status, refused[model].out) == (2, "") and part in refused[model].err
        assert_one_line(refused[model].err)
    assert not list(folder.glob("new.*"))
