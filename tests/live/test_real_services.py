"""The services of `benchmarks/services`: how any is started and stopped, and real ones behind simnmt's clients."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.services import base, libretranslate, llama_server
from benchmarks.services.base import ServiceUnavailable
from simnmt.service.chat import ChatAnswer, ChatClient
from simnmt.service.client import TranslationClient
from simnmt.service.messages import TranslateRequest

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the services run on Linux alone")

TOY = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(repr((os.getpid(), sorted(os.sched_getaffinity(0)))).encode())

HTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base.cache_folder().mkdir(parents=True)
    return base.cache_folder()


def test_a_service_runs_on_its_cores_until_it_is_stopped(cache: Path) -> None:
    url, allowed = f"http://127.0.0.1:{base.free_port()}", os.sched_getaffinity(0)
    command = [sys.executable, "-c", TOY, url.rpartition(":")[2]]
    with base.running("toy", command, url, cores=[max(allowed)]):
        with urllib.request.urlopen(url) as answer:
            process, cores = eval(answer.read())
        assert cores == [max(allowed)]
        with pytest.raises(ServiceUnavailable, match="another service answers already"), base.running("toy", command, url):
            pass
    assert os.sched_getaffinity(0) == allowed
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_service_that_ends_at_once_is_reported_with_its_output(cache: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no model')"]
    ended = pytest.raises(ServiceUnavailable, match="toy ended with status 1; its output is in ")
    with ended as error, base.running("toy", command, "http://127.0.0.1:9"):
        pass
    assert Path(str(error.value).rpartition(" in ")[2]).read_text() == "no model\n"


def test_files_whose_making_failed_are_made_again(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        base.run_step([sys.executable, "-c", "raise SystemExit('error: disk full')"], "writing it")

    with pytest.raises(ServiceUnavailable, match=r"^writing it: error: disk full$"):
        base.make_once("files", fail)
    assert base.make_once("files", lambda folder: (folder / "whole").touch()) == cache / "files"
    base.make_once("files", fail)  # made already
    assert {path.name for path in (cache / "files").iterdir()} == {"whole", ".complete"}


def test_a_process_that_has_ended_is_not_killed_since_its_number_may_be_another_group_now(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base.os, "killpg", lambda *group: pytest.fail(f"killed {group}"))
    base.run_step([sys.executable, "-c", "pass"], "doing nothing")


def made(*makers: Callable[[], object]) -> None:
    """Make the files of a service; skip the test where that is impossible: no compiler, no package index."""
    try:
        for make in makers:
            make()
    except ServiceUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.deep
def test_llama_server_answers_any_number_of_tokens() -> None:
    made(llama_server.program, llama_server.model)

    async def ask(url: str) -> list[ChatAnswer]:
        async with ChatClient(url, model=(await _models(url))[0]) as client:
            asked = [client.ask(f"{count}: Übersetze diesen Satz.", max_tokens=count) for count in (1, 12, 40)]
            return await asyncio.gather(*asked)

    async def _models(url: str) -> list[str]:
        async with ChatClient(url) as client:
            return [model["id"] for model in await client.models()]

    with llama_server.llama_server(slots=2, context=128) as url:
        answers = asyncio.run(ask(url))
    assert [answer.output_tokens for answer in answers] == [1, 12, 40]
    assert [len(answer.tokens_s) for answer in answers] == [1, 12, 40]
    assert all(answer.is_cut and answer.text for answer in answers)


@pytest.mark.deep
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "as shipped"])
def test_libretranslate_copies_with_some_words_in_two_parts(pinned: bool) -> None:
    made(libretranslate.python)
    texts = ["Heute ist das Wetter schön und wir gehen spazieren.", "Und der Mann ist da. Wir wissen es nicht!", "Ja"]

    async def translate(url: str) -> list[str]:
        async with TranslationClient(url) as client:
            asked = [client.translate(TranslateRequest((text,), False, "de", "en")) for text in texts]
            return [exchange.answer.texts[0] for exchange in await asyncio.gather(*asked)]

    with libretranslate.libretranslate(pinned=pinned) as url:
        translations = asyncio.run(translate(url))
        log = (base.cache_folder() / f"libretranslate-{url.rpartition(':')[2]}.log").read_text()
    assert "Updating" not in log  # it did not look for its index
    for text, translation in zip(texts, translations, strict=True):
        assert "".join(translation.lower().split()) == "".join(text.lower().split())
        assert 1.0 <= len(translation.split()) / len(text.split()) <= 2.0
