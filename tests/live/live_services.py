"""Live services of tests: fronts within this process, on one event loop, each with an engine's process of its own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.live.decider import Decision, LiveDecider, live_unit
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.model_engines import ModelEngines
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.results.live_log import DeciderRecord, DecisionRecord, HeardRecord, LostRecord
from simnmt.scenario.source import open_source
from simnmt.service.client import Exchange, TranslationClient
from simnmt.service.http_server import Access, parse_address
from simnmt.service.load import cancel_others
from simnmt.service.messages import ServiceError, TranslateRequest
from tests.live.fake_engines import load_echo

_FORKS = multiprocessing.get_context("forkserver")
FRONT = FrontSettings(forced_lengths=True)
Answer = TypeVar("Answer")


def engine_settings(loader: Any = load_echo, **settings: Any) -> EngineSettings:
    return EngineSettings(**{"model": "fake", "loader": loader, "nice": 0} | settings)


def new_engine(loader: Any = load_echo, **settings: Any) -> EngineProcess:
    """An engine whose process is a copy of one that has imported what it needs."""
    _FORKS.set_forkserver_preload(["simnmt.live.engine", "tests.live.fake_engines"])
    return EngineProcess(engine_settings(loader, **settings), _FORKS)


def ask(text: str = "a b c", forced: int | None = None, source: str = "de", **settings: Any) -> TranslateRequest:
    return TranslateRequest((text,), False, source, "en", forced_lens=None if forced is None else (forced,), **settings)


class Services:
    """The services of a module's tests, which run between two calls of `run` only."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.errors: list[str] = []
        """Lines that services reported."""
        self.faults: list[str] = []
        """Exceptions that nobody handled."""
        self.loop.set_exception_handler(lambda loop, context: self.faults.append(str(context)))
        self.started: list[LiveServer | LiveGateway] = []

    def run(self, work: Coroutine[Any, Any, Answer], timeout_s: float = 30.0) -> Answer:
        return self._complete(asyncio.wait_for(work, timeout_s))

    def _complete(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        browsers = asyncio._get_running_loop()  # Playwright's, while the last fixtures of all are torn down
        asyncio._set_running_loop(None)
        try:
            return self.loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(browsers)

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def server(
        self, engine: EngineSettings | EngineProcess, front: FrontSettings = FRONT, log: Any = None, **others: Any
    ) -> LiveServer:
        """A started server; `others`: its `access` and `limits`."""
        process = engine if isinstance(engine, EngineProcess) else EngineProcess(engine, _FORKS)
        front, keeps = replace(front, **others), process is engine
        return self._start(LiveServer(process, front, log=log, on_error=self.errors.append, keeps_engine=keeps))

    def model_server(self, engines: ModelEngines, log: Any = None) -> LiveServer:
        """A started server of models that are named by their pairs."""
        front = replace(FRONT, pairs=[(source, target) for source, target in (model.split("-") for model in engines.models)])
        return self._start(LiveServer(engines, front, log=log, on_error=self.errors.append))

    def gateway(self, settings: GatewaySettings, log: Any = None, engine: Any = None) -> LiveGateway:
        keeps = isinstance(engine, EngineProcess)
        return self._start(LiveGateway(settings, engine, log=log, on_error=self.errors.append, keeps_engine=keeps))

    def front(self, kind: str, engine: EngineProcess, token: str = "") -> LiveServer | LiveGateway:
        """A server, or a gateway that offloads everything to it."""
        server = self.server(engine, access=Access(token=token))
        if kind == "server":
            return server
        front, servers = replace(FRONT, access=Access(token=token)), {"cloud": server.http.url}
        settings = GatewaySettings(unit_of("@open-loop"), "cloud", servers, front, token=token, any_model=True)
        return self.gateway(settings, None, engine)

    def _start(self, service: Any) -> Any:
        try:
            self.run(service.start())
        except BaseException:
            self.run(service.close())
            raise
        self.started.append(service)
        return service

    def stop(self, service: LiveServer | LiveGateway) -> None:
        self.started.remove(service)
        self.run(service.http.stop())
        self.run(service.close())

    def translate(self, url: str, *requests: TranslateRequest, timeout_s: float = 30.0) -> list[Exchange | ServiceError]:
        """The answers of requests that are sent together, over one client."""

        async def work() -> list[Exchange | ServiceError]:
            async with TranslationClient(url, timeout_s=timeout_s) as client:
                return await together(client, requests)

        return self.run(work(), 2 * timeout_s)

    def close(self) -> None:
        for service in reversed(self.started[:]):
            self.stop(service)
        self._complete(cancel_others())  # as at the end of a service's process: aiohttp reads what is left of refused bodies
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        gc.collect()  # a task that failed unseen reports that when it is freed
        assert self.faults == [], self.faults


async def together(client: TranslationClient, requests: Sequence[TranslateRequest]) -> list[Exchange | ServiceError]:
    """The answers of requests that are sent at once, in their order."""
    answers = await asyncio.gather(*(client.translate(request) for request in requests), return_exceptions=True)
    for answer in answers:
        assert isinstance(answer, Exchange | ServiceError), answer
    return answers  # type: ignore[return-value]


@contextmanager
def services() -> Iterator[Services]:
    running = Services()
    try:
        yield running
    finally:
        running.close()


def plan_of(scenario: Any, *overrides: str) -> RunPlan:
    source = open_source(scenario, ["fit.inferences=0", *overrides])
    return read_inputs(source.scenario, Path.cwd(), source.document)


def unit_of(scenario: Any, *overrides: str) -> Unit:
    return live_unit(plan_of(scenario, *overrides))


def host_port(url: str) -> tuple[str, int]:
    address = parse_address(url.split("//")[1], "url")
    return address.host, address.port


def replayed_targets(unit: Unit, policy: str, initial_s: Mapping[int, float], events: Iterable[DeciderRecord]) -> list[int]:
    """The targets that a policy chooses for the logged requests, given what the gateway had measured before each."""
    decider = LiveDecider(unit, policy, initial_s)
    decisions: dict[int, Decision] = {}
    targets = []
    for event in events:
        if isinstance(event, DecisionRecord):
            held = event.target if event.held else None
            known: dict[str, Any] = {"gain": event.gain, "again": event.again}
            decision = decider.decide(event.request, event.src_len, event.at_s, event.unreachable, held, **known)
            decisions[event.request] = decision
            targets.append(decision.target)
        elif isinstance(event, HeardRecord):
            heard = decisions.pop(event.request)
            decider.heard(heard, event.at_s, transfer_s=event.transfer_s, wait_s=event.wait_s, report=event.report)
        elif isinstance(event, LostRecord):
            decider.lost(decisions.pop(event.request))
        else:
            decider.shook_hands(event.target, event.rtt_s, event.at_s)
    return targets
