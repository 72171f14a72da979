"""The front's side of an engine: messages in pieces, batches, withdrawals, refusals, and processes that end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.batching import Batching
from simnmt.live.engine_process import EngineProcess, Execution, Frames, frame
from simnmt.nmt.errors import NmtError
from simnmt.service.messages import ServiceError
from tests.live.fake_engines import FATAL, load_paced, load_refused, load_refused_once
from tests.live.live_services import Services, engine_settings


@given(st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=300)), max_size=8), st.lists(st.integers(1, 50), min_size=1))
def test_messages_arrive_whole_however_they_are_cut(messages: list[Any], sizes: list[int]) -> None:
    data, frames, received = b"".join(map(frame, messages)), Frames(), list[Any]()
    at = 0
    for number in range(len(data)):
        if at >= len(data):
            break
        size = sizes[number % len(sizes)]
        received += frames.feed(data[at : at + size])
        at += size
    assert received == messages


def decode(services: Services, process: EngineProcess, texts: list[str]) -> list[Execution]:
    async def work() -> list[Execution]:
        lines = process.codec.lines(texts)
        return await asyncio.gather(*(process.submit(line)[1] for line in lines))

    return services.run(work())


@pytest.fixture(scope="module")
def paced(services: Services) -> Any:
    engine = EngineProcess(engine_settings(load_paced, batching=Batching(4)))
    services.run(engine.ready())
    yield engine
    services.run(engine.close())


def test_sentences_are_batched_as_the_settings_say(services: Services, paced: EngineProcess) -> None:
    executions = decode(services, paced, ["a b"] * 9)
    assert max(execution.largest_batch for execution in executions) == 4
    assert all(execution.begin_s < execution.end_s for execution in executions)
    assert len({execution.end_s for execution in executions}) >= 3


def test_an_engine_whose_restart_is_refused_is_started_again(services: Services, tmp_path: Path) -> None:
    errors: list[str] = []

    async def work() -> int:
        process = EngineProcess(replace(engine_settings(load_refused_once), model=str(tmp_path / "starts")))
        process.RESTART_S = 0.05
        process.on_error = errors.append
        await process.start()
        (line,) = process.codec.lines(["a b"])
        with pytest.raises(ServiceError, match="ended"):
            await process.submit(line, FATAL)[1]
        await process.ready()
        steps = (await process.submit(line)[1]).tgt_len
        await process.close()
        return steps

    assert services.run(work()) == 3
    assert [text for text in errors if "could not be started" in text] == [
        "the engine's process could not be started: cpu has too little memory for the model"
    ]


def test_a_withdrawn_sentence_is_not_decoded_and_nothing_of_it_is_left(services: Services, paced: EngineProcess) -> None:
    async def work() -> float:
        (line,) = paced.codec.lines(["w " * 100])  # 0.2 s each, four together
        submitted = [paced.submit(line) for _ in range(40)]
        await asyncio.sleep(0.02)
        for key, _ in submitted:
            paced.withdraw(key)
            paced.withdraw(key)
        begin_s = time.monotonic()
        (short,) = paced.codec.lines(["a"])
        await paced.submit(short)[1]
        return time.monotonic() - begin_s

    assert services.run(work()) < 1.5  # after the batch under way alone; all would take 2 s
    assert paced.waiting == 0


def test_without_more_to_come_no_sentence_waits_for_company(services: Services) -> None:
    async def work() -> None:
        process = EngineProcess(engine_settings(load_paced, batching=Batching(4, longest_wait_s=float("inf"))))
        await process.start()
        (line,) = process.codec.lines(["a b"])
        waiting = process.submit(line)[1]
        await asyncio.sleep(0.1)
        assert not waiting.done()
        process.hurry()
        await waiting
        await process.submit(line)[1]  # nor does one that comes later
        await process.close()

    services.run(work())


def test_a_model_that_is_refused_is_refused_with_its_remedy(services: Services) -> None:
    process = EngineProcess(engine_settings(load_refused))
    with pytest.raises(NmtError, match=r"no such model \(name another\)"):
        services.run(process.start())
    services.run(process.close())
    elsewhere = EngineProcess(engine_settings(cpus=(4000,)))
    with pytest.raises(NmtError, match="cannot run on processors 4000"):
        services.run(elsewhere.start())
    services.run(elsewhere.close())


def test_an_engine_of_a_front_with_more_than_a_thousand_connections_serves(services: Services) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] <= 1024:  # beyond what select() takes
            held.append(os.dup(held[0]))
        engine = EngineProcess(engine_settings())
        services.run(engine.ready())
        assert len(decode(services, engine, ["a b"])) == 1
        services.run(engine.close())
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_hangs_is_killed_at_the_end(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineProcess, "CLOSE_S", 0.2)
    process = EngineProcess(engine_settings())
    number = services.run(process.start()).process
    os.kill(number, signal.SIGSTOP)
    services.run(process.close())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_the_process_ends_with_its_front(services: Services) -> None:
    process = EngineProcess(engine_settings())
    number = services.run(process.start()).process
    (line,) = process.codec.lines(["a"])
    assert process._transport is not None
    process._closing = True
    process._transport.abort()  # as when the front is killed
    deadline_s = time.monotonic() + 10.0
    while process._process is not None and process._process.poll() is None and time.monotonic() < deadline_s:
        services.wait(0.01)
    assert process._process is not None
    assert process._process.returncode == 0, number
    with pytest.raises(ServiceError, match="is starting") as caught:
        process.submit(line)
    assert caught.value.status == 503
