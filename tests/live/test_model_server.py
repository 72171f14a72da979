"""A server of several models that do not all fit into memory: who waits, what is loaded, and what is freed."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from simnmt.base.errors import InputError
from simnmt.batching import Batching, mini
from simnmt.live import model_engines
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings
from simnmt.live.model_engines import ModelEngines
from simnmt.live.server import LiveServer
from simnmt.results.live_log import RequestRecord, read_live_log
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.messages import ServiceError, Times, TranslateRequest
from tests.live.fake_engines import load_echo, load_paced, load_refused_once, load_slowly
from tests.live.live_services import FRONT, Services, ask, engine_settings, new_engine, together, unit_of
from tests.model_cache import misses

Serve = Callable[..., LiveServer]


@pytest.fixture(autouse=True)
def of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_engines, "private_bytes", lambda process: 1)


@pytest.fixture
def serve(services: Services) -> Serve:
    """Starts a server of models, all of one size, of which `memory` fit into memory."""

    def start(memory: int | None, log: Any = None, batching: Batching | None = None, **loaders: Any) -> LiveServer:
        options = {} if batching is None else {"batching": batching}
        models = {f"{source}-en": engine_settings(loader, **options) for source, loader in loaders.items()}
        return services.model_server(ModelEngines(models, memory), log)

    return start


def get(services: Services, server: LiveServer, path: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(server.http.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    return services.run(services.loop.run_in_executor(None, read))  # type: ignore[arg-type]


def loads(services: Services, server: LiveServer) -> Counter[str]:
    counters = re.findall(r'simnmt_model_loads_total{model="(.*)"} (.*)', get(services, server, "/metrics"))
    return Counter({model: int(float(value)) for model, value in counters})


def answers(services: Services, server: LiveServer, *requests: TranslateRequest) -> list[Exchange]:
    exchanges = services.translate(server.http.url, *requests)
    assert all(isinstance(exchange, Exchange) for exchange in exchanges), exchanges
    return exchanges  # type: ignore[return-value]


def times(services: Services, server: LiveServer, *requests: TranslateRequest) -> list[Times]:
    """The times that answers state."""
    return [exchange.answer.times for exchange in answers(services, server, *requests) if exchange.answer.times is not None]


def processes(server: LiveServer) -> dict[str, int]:
    return {copy.model: process.pid for copy, process in server.engine._processes.items()}  # type: ignore[misc]


def records(log: io.StringIO, tmp_path: Path) -> list[RequestRecord]:
    (tmp_path / "log.jsonl").write_text(log.getvalue())
    return read_live_log(tmp_path / "log.jsonl").requests


def test_each_pair_is_listed_and_translated_and_no_other(services: Services, serve: Serve) -> None:
    server = serve(None, de=load_echo, fr=load_echo)
    languages = {language["code"]: language["targets"] for language in json.loads(get(services, server, "/languages"))}
    assert languages == {"de": ["en"], "fr": ["en"], "en": []}
    assert len(answers(services, server, ask(), ask(source="fr"))) == 2
    assert loads(services, server) == {"de-en": 0, "fr-en": 0}, "all were loaded from the start"
    for source in ("es", "auto"):
        [refused] = services.translate(server.http.url, ask(source=source))
        assert isinstance(refused, ServiceError) and refused.status == 400


def test_loads_are_those_of_a_cache_on_the_log_and_are_counted(services: Services, serve: Serve, tmp_path: Path) -> None:
    log, random = io.StringIO(), Random(3)
    server = serve(2, log, de=load_echo, fr=load_echo, es=load_echo)
    sources = [random.choice(["de", "de", "fr", "es"]) for _ in range(24)]
    for source in sources:
        answers(services, server, ask(source=source))
    models = [f"{source}-en" for source in sources]
    missed = misses(dict.fromkeys(models, 1), 2, models)
    assert [record.model for record in records(log, tmp_path)] == models
    assert [record.model_load for record in records(log, tmp_path)] == missed and 3 <= sum(missed) < 24
    assert sum(loads(services, server).values()) == sum(missed)
    assert set(processes(server)) == set(list(dict.fromkeys(reversed(models)))[:2])


def test_a_request_waits_for_its_model_and_others_do_not(services: Services, serve: Serve) -> None:
    server = serve(2, de=load_paced, fr=load_slowly)
    answers(services, server, ask())
    slow, fast, again = times(services, server, ask(source="fr"), ask(), ask(source="fr"))
    assert min(slow.queue_s, again.queue_s) > 0.29, "the second waits for the same load"
    assert fast.total_s < slow.queue_s


def test_a_load_waits_for_the_last_sentence_of_the_model_that_it_evicts_and_frees_its_process(
    services: Services, serve: Serve
) -> None:
    server = serve(1, de=load_paced, fr=load_paced)
    answers(services, server, ask())
    before = processes(server)["de-en"]
    first, second, third = times(services, server, ask(forced=200), ask(source="fr"), ask())
    assert second.queue_s > first.execution_s > 0.3
    assert third.queue_s > second.queue_s, "it entered after the eviction"
    assert not psutil.pid_exists(before) and list(processes(server)) == ["de-en"]


def test_sentences_of_two_models_are_executed_in_their_order_and_never_at_once(services: Services, serve: Serve) -> None:
    server = serve(None, de=load_paced, fr=load_paced)
    requests = (ask(forced=100), ask(source="fr", forced=100), ask(forced=100), ask(source="fr"))
    waits = [stated.queue_s for stated in times(services, server, *requests)]
    assert all(later - earlier > 0.18 for earlier, later in pairwise(waits)), waits


def test_a_batch_takes_the_sentences_of_its_model_that_came_after_those_of_another(services: Services, serve: Serve) -> None:
    server = serve(None, batching=Batching(4), de=load_paced, fr=load_paced)
    first, *others = answers(services, server, ask(forced=200), *(ask(source=source, forced=20) for source in ("fr", "de") * 3))
    batches = {source: {exchange.answer.lengths[2] for exchange in others[at::2]} for at, source in enumerate(("fr", "de"))}
    assert first.answer.lengths[2] == 1 and batches == {"fr": {3}, "de": {3}}


def test_a_sentence_that_waits_for_company_lets_other_models_execute(services: Services, serve: Serve) -> None:
    server = serve(None, batching=mini(2), de=load_echo, fr=load_echo)
    [lost] = services.translate(server.http.url, ask(deadline_s=0.2))
    assert isinstance(lost, ServiceError) and lost.status == 504 and server.engine.waiting == 0, "it is no company"

    async def work() -> None:
        async with TranslationClient(server.http.url) as client:
            alone = asyncio.ensure_future(client.translate(ask()))
            while server.engine.waiting == 0:
                await asyncio.sleep(0.01)
            others = await together(client, [ask(source="fr"), ask(source="fr")])
            assert [other.answer.lengths[2] for other in others if isinstance(other, Exchange)] == [2, 2]
            assert not alone.done()
            await client.translate(ask())
            assert (await alone).answer.lengths[2] == 2

    services.run(work())


def test_the_end_fails_what_executes_and_what_waits_for_a_load_and_leaves_no_process(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = ModelEngines({"de-en": engine_settings(load_paced), "fr-en": engine_settings(load_echo)}, 1)
    monkeypatch.setattr(EngineProcess, "CLOSE_S", 0.1)
    started = list[EngineProcess]()
    new_process = engines._new_process
    monkeypatch.setattr(engines, "_new_process", lambda model: started.append(new_process(model)) or started[-1])

    async def work() -> None:
        await engines.ready()
        line = engines.line("a b c", "de-en")
        await engines.execute(line, model="de-en")
        before = asyncio.all_tasks()
        executed = asyncio.ensure_future(engines.execute(line, 10_000, model="de-en"))
        while not any(process.waiting for process in engines._processes.values()):
            await asyncio.sleep(0.01)
        kept = asyncio.ensure_future(engines.execute(line, model="fr-en"))
        await asyncio.sleep(0.0)
        await engines.close()
        for error in await asyncio.gather(executed, kept, engines.execute(line, model="fr-en"), return_exceptions=True):
            assert isinstance(error, ServiceError) and error.status == 503
        assert asyncio.all_tasks() == before and [process.pid for process in started] == [None] * len(started)

    services.run(work())


def test_the_end_during_an_eviction_ends_the_evicted_process(services: Services) -> None:
    engines = ModelEngines({"de-en": engine_settings(load_echo), "fr-en": engine_settings(load_echo)}, 1)

    async def work() -> None:
        await engines.ready()
        await engines.execute(engines.line("a b c", "de-en"), model="de-en")
        [evicted] = engines._processes.values()
        kept = asyncio.ensure_future(engines.execute(engines.line("a b c", "fr-en"), model="fr-en"))
        while not evicted._closing:
            await asyncio.sleep(0.0)
        await engines.close()
        [error] = await asyncio.gather(kept, return_exceptions=True)
        assert isinstance(error, ServiceError) and error.status == 503 and evicted.pid is None

    services.run(work())


def test_an_unforeseen_fault_of_a_load_stops_no_other_load(
    services: Services, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(1, de=load_echo, fr=load_echo)
    ready = EngineProcess.ready

    async def fail_once(process: EngineProcess) -> Any:
        monkeypatch.setattr(EngineProcess, "ready", ready)
        raise EOFError("the forkserver has gone")

    monkeypatch.setattr(EngineProcess, "ready", fail_once)
    lost, served = services.translate(server.http.url, ask(), ask(source="fr"))
    assert isinstance(lost, ServiceError) and lost.status == 503
    assert isinstance(served, Exchange) and any("de-en could not be loaded" in error for error in services.errors)
    services.errors.clear()


def test_a_model_that_cannot_be_loaded_is_tried_again_while_others_serve(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(EngineProcess, "RESTART_S", 0.2)
    fragile = replace(engine_settings(load_refused_once), model=str(tmp_path / "starts"))
    server = services.model_server(ModelEngines({"de-en": fragile, "fr-en": engine_settings(load_echo)}, 2))
    lost, served = services.translate(server.http.url, ask(), ask(source="fr"))
    assert isinstance(lost, ServiceError) and lost.status == 503
    assert isinstance(served, Exchange)
    deadline_s = time.monotonic() + 30.0
    while isinstance(services.translate(server.http.url, ask())[0], ServiceError) and time.monotonic() < deadline_s:
        services.wait(0.1)
    answers(services, server, ask())
    assert any("de-en could not be loaded" in error for error in services.errors)
    services.errors.clear()


def test_a_memory_that_is_smaller_than_a_model_is_refused(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_engines, "private_bytes", lambda process: 2 * 10**9)
    engines = ModelEngines({"de-en": engine_settings(), "fr-en": engine_settings()}, 10**9)
    with pytest.raises(InputError, match="1 GB of memory, where de-en takes 2 GB"):
        services.model_server(engines)


def test_gateways_of_two_languages_offload_to_one_server(services: Services, serve: Serve) -> None:
    """Each asks for the hash of the model of its languages."""
    server, unit = serve(1, de=load_echo, fr=load_echo), unit_of("@open-loop")
    for source in ("de", "fr"):
        front, engine = replace(FRONT, pairs=[(source, "en")]), new_engine()
        settings = GatewaySettings(unit, "cloud", {"cloud": server.http.url}, front, any_model=True)
        gateway = services.gateway(settings, None, engine)
        [exchange] = services.translate(gateway.http.url, ask(source=source))
        assert isinstance(exchange, Exchange) and "target=1" in exchange.headers["Simnmt-Decision"]
        assert gateway._servers[0].hash == server.engine.hashes[f"{source}-en"]
        services.run(engine.close())
