"""An engine: batches, withdrawals, refusals, processes that end; and the tokenisers of Hugging Face's folders in it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnmt.batching import Batching
from simnmt.live.engine import EngineSettings, TextCodec, load_model
from simnmt.live.engine_process import EngineProcess
from simnmt.nmt.errors import NmtError
from simnmt.nmt.pretrained_tokenizer import Languages
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.translation import Translator
from simnmt.service.messages import ServiceError
from tests.campaigns.harness import deep
from tests.live.fake_engines import FATAL, load_paced, load_refused, load_refused_once
from tests.live.live_services import Services, new_engine
from tests.nmt.pretrained_folders import FOLDERS, text


def decode(services: Services, process: EngineProcess, *texts: str) -> list[Any]:
    async def work() -> list[Any]:
        return await asyncio.gather(*(process.execute(process.line(text)) for text in texts))

    return services.run(work())


@pytest.fixture(scope="module")
def paced(services: Services) -> Iterator[EngineProcess]:
    engine = new_engine(load_paced, batching=Batching(4))
    services.run(engine.ready())
    yield engine
    services.run(engine.close())


def test_sentences_are_batched_as_the_settings_say(services: Services, paced: EngineProcess) -> None:
    results = decode(services, paced, *["a b"] * 9)
    assert max(result.lengths[2] for result in results) == 4
    assert min(result.execution_s for result in results) > 0.0
    assert len({round(result.queue_s + result.execution_s, 3) for result in results}) >= 3, "three batches"


def test_an_engine_whose_restart_is_refused_is_started_again(services: Services, tmp_path: Path) -> None:
    errors: list[str] = []

    async def work() -> int:
        process = new_engine(load_refused_once, model=str(tmp_path / "starts"))
        process.RESTART_S = 0.05
        process.on_error = errors.append
        await process.ready()
        line = process.line("a b")
        with pytest.raises(ServiceError, match="ended"):
            await process.execute(line, FATAL)
        await process.ready()
        steps = (await process.execute(line)).lengths[1]
        await process.close()
        return steps

    assert services.run(work()) == 3
    assert sum("could not be started: cpu has too little memory" in text for text in errors) == 1


def test_a_withdrawn_sentence_is_not_decoded_and_nothing_of_it_is_left(services: Services, paced: EngineProcess) -> None:
    async def work() -> float:
        line = paced.line("w " * 100)  # 0.2 s each, four together
        tasks = [asyncio.ensure_future(paced.execute(line)) for _ in range(40)]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        begin_s = time.monotonic()
        await paced.execute(paced.line("a"))
        return time.monotonic() - begin_s

    assert services.run(work()) < 1.5  # after the batch under way alone; all would take 2 s
    assert paced.waiting == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loader": load_refused}, r"no such model \(name another\)"),
        ({"cpus": (4000,)}, r"cannot run on processors \[4000\]"),
    ],
)
def test_what_cannot_be_loaded_is_refused(services: Services, settings: dict[str, Any], message: str) -> None:
    process = new_engine(**settings)
    with pytest.raises(NmtError, match=message):
        services.run(process.ready())
    services.run(process.close())


def test_a_process_that_hangs_is_killed_at_the_end(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineProcess, "CLOSE_S", 0.2)
    process = new_engine()
    services.run(process.ready())
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    services.run(process.close())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ServiceError, match="is starting") as caught:
        decode(services, process, "a")
    assert caught.value.status == 503


FRONT = """
import asyncio, os, signal
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from tests.campaigns.harness import deep
from tests.live.fake_engines import load_echo

async def work():
    process = EngineProcess(EngineSettings("fake", loader=load_echo))
    await process.ready()
    print(process.pid, flush=True)
    {end}

asyncio.run(work())
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", deep("raise KeyboardInterrupt")])
def test_the_process_ends_with_its_front(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", FRONT.format(end=end)], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0
    deadline_s = time.monotonic() + 10.0
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline_s:
            os.kill(int(done.stdout), 0)
            time.sleep(0.01)


GIVEN = {"opus": {}, "nllb": {"src_lang": "deu_Latn", "tgt_lang": "eng_Latn"}}
LINES = text("de")[:4]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name in GIVEN:
        FOLDERS[name](place / name)
    return place


@pytest.mark.parametrize(("name", "backend"), [("opus", "torch"), ("nllb", "torch"), ("opus", "ctranslate2")])
def test_an_engine_gives_the_texts_of_nmt_translate(folders: Path, name: str, backend: str) -> None:
    """With the log-probabilities of its scores."""
    engine = EngineSettings(str(folders / name), backend, threads=1, max_len=12, scored=True, **GIVEN[name])  # type: ignore[arg-type]
    model = load_model(engine)
    codec = TextCodec(engine, model.engine)
    decoder = model.new_decoder(engine.batching)
    outputs = {}
    lines = [codec.line(text) for text in LINES]
    for number, line in enumerate(lines):
        decoder.arrive(number, DecodeRequest(line.ids, max_len=line.most))
    while decoder.busy:
        outputs.update({number: codec.translation(lines[number], output) for number, output in decoder.act()[1]})
    assert codec.has_subwords
    languages = Languages(GIVEN[name].get("src_lang"), GIVEN[name].get("tgt_lang"))
    translations = Translator.load(folders / name, languages=languages, max_len=12).translate(LINES)
    for number, translation in enumerate(translations):
        assert outputs[number].text == translation.text
        assert outputs[number].logprob == pytest.approx(translation.logprob, rel=1e-4, nan_ok=True)
