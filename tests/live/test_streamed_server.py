"""A live server that streams its model: states by the lifecycle, in real buffers; queues, errors and a drain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from simnmt.live.deployment import streamed_engine  # noqa: E402
from simnmt.live.engine_process import EngineSettings  # noqa: E402
from simnmt.live.streamed_model import StreamedModel  # noqa: E402
from simnmt.live.streamed_settings import StreamedSettings, streamed_settings  # noqa: E402
from simnmt.nmt.engine import DecodeRequest  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.profile.streaming_cost import BITS, StiCost  # noqa: E402
from simnmt.service.client import Exchange  # noqa: E402
from simnmt.service.messages import ServiceError  # noqa: E402
from simnmt.streaming.errors import StoreError  # noqa: E402
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN  # noqa: E402
from simnmt.streaming.plan.submodel import PlanError  # noqa: E402
from simnmt.streaming.store.shard_store import ShardStore  # noqa: E402
from simnmt.streaming.store.writer import write_store  # noqa: E402
from tests.command_line import Outcome, simnmt  # noqa: E402, F401 - a fixture
from tests.live.live_services import Services, ask  # noqa: E402
from tests.profile.made_profile import whole_profile  # noqa: E402
from tests.profile.made_sti import sti_block  # noqa: E402
from tests.streaming.made_encoder import made_weights  # noqa: E402

LENGTH, PRELOAD, CACHE = 6, 5_000, 40_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stores") / "store"
    write_store(made_weights(layers=3, heads=4, width=32, ffn=64), made)
    return made


@pytest.fixture
def store(path: Path) -> Iterator[ShardStore]:
    with ShardStore.open(path) as opened:
        yield opened


def cost_of(store: ShardStore) -> StiCost:
    """Reads at 4 MB/s, a layer of all slices in 4 ms."""
    sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
    slices = store.geometry.heads
    return StiCost(
        store.geometry,
        {bits: size / 4e6 for bits, size in sizes.items()},
        {LENGTH: tuple(0.004 * (slice_ + 1) / slices for slice_ in range(slices))},
        sizes,
    )


def settings_for(path: Path, **changed: Any) -> StreamedSettings:
    options = {"deadline_s": 0.05, "preload_bytes": PRELOAD, "cache_bytes": CACHE, "engagement_gap_s": 10.0}
    with ShardStore.open(path) as store:
        settings = streamed_settings(cost_of(store), **(options | {"reclaimed_after_s": 60.0} | changed))
        return replace(settings, fingerprint=store.fingerprint)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Box:
    """A streamed model whose requests arrive when a test wants them to."""

    def __init__(self, store: ShardStore, settings: StreamedSettings) -> None:
        self.clock = Clock()
        self.model = StreamedModel(store, settings, clock=self.clock)

    def state_after(self, idle_s: float) -> int:
        """The state that a request reports which arrives so long after the last one has ended."""
        self.clock.now_s += idle_s
        (hypothesis,) = self.model.classify([DecodeRequest([1, 2, 3], arrived_s=self.clock.now_s)])
        return hypothesis.report[0]

    @property
    def held_bytes(self) -> int:
        return self.model.turns.buffer.size_bytes


def test_states_follow_the_lifecycle_and_the_memory_follows_the_states(store: ShardStore, path: Path) -> None:
    settings = settings_for(path)
    box, last = Box(store, settings), settings.lifecycle.last
    assert last >= 2, "the cache lets later turns differ"
    turns = [box.state_after(1.0) for _ in range(last + 1)]
    assert turns == [COLD, *range(2, last + 1), last]
    assert PRELOAD < box.held_bytes <= CACHE
    assert box.state_after(10.1) == FIRST_TURN
    assert box.state_after(9.9) == FIRST_TURN + 1
    assert box.state_after(60.1) == COLD


def test_an_idle_model_gives_its_memory_back_when_its_state_changes(store: ShardStore, path: Path) -> None:
    box = Box(store, settings_for(path))
    assert box.model.rest(box.clock.now_s) == float("inf"), "cold: there is nothing to give back"
    box.state_after(0.0)
    engaged, ended_s = box.held_bytes, box.clock.now_s
    due_s = box.model.rest(ended_s + 9.0)
    assert box.held_bytes == engaged
    assert 10.0 <= due_s - ended_s < 10.1
    due_s = box.model.rest(due_s)
    plan = box.model.turns.first_plan
    assert box.model.turns.buffer.contents == {shard: plan.bits[shard] for shard in sorted(plan.preloaded)}
    assert 60.0 <= due_s - ended_s < 60.1
    assert box.model.rest(due_s) == float("inf")
    assert box.held_bytes == 0


def test_a_box_that_keeps_nothing_is_cold_in_each_engagement(store: ShardStore, path: Path) -> None:
    box = Box(store, settings_for(path, keeps_preload=False))
    assert [box.state_after(idle_s) for idle_s in (0.0, 1.0, 11.0)] == [COLD, 2, COLD]


def test_later_turns_read_less(store: ShardStore, path: Path) -> None:
    box, reads = Box(store, settings_for(path, cache_bytes=10**6)), []
    store.read_into = lambda record, out: (reads.append(record.size), ShardStore.read_into(store, record, out))  # type: ignore
    read_bytes = []
    for _ in range(3):
        reads.clear()
        box.state_after(1.0)
        read_bytes.append(sum(reads))
    assert read_bytes[0] > read_bytes[1] >= read_bytes[2]


def test_a_damaged_store_fails_the_request_and_the_next_one_is_cold(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write_store(made_weights(layers=3, heads=4, width=32, ffn=64), folder)
    shards = folder / "shards.bin"
    good = shards.read_bytes()
    with ShardStore.open(folder) as store:
        box = Box(store, settings_for(folder))
        assert box.state_after(0.0) == COLD
        shards.write_bytes(bytes(len(good)))
        with pytest.raises(StoreError, match="cannot be read from its store") as refused:
            box.state_after(61.0)
        assert str(folder) not in str(refused.value), "clients need not know the path"
        shards.write_bytes(good)
        assert box.state_after(1.0) == COLD


def test_a_deadline_that_no_submodel_meets_is_refused(path: Path) -> None:
    with pytest.raises(PlanError, match=r"no submodel ends within 0\.1 ms"):
        settings_for(path, deadline_s=1e-4)
    with pytest.raises(PlanError, match="reclaimed after 5 s"):
        settings_for(path, reclaimed_after_s=5.0)


def engine_for(path: Path, **changed: Any) -> EngineSettings:
    return streamed_engine(path, settings_for(path, **changed), threads=1, nice=0)


def test_requests_queue_and_their_answers_report_the_states(services: Services, path: Path) -> None:
    server = services.server(engine_for(path, engagement_gap_s=0.4, reclaimed_after_s=2.0))
    url = server.front.service.url
    health = server.health()
    assert health["task"] == "classification"
    assert health["plan"]["layers"] >= 1
    assert health["plan"]["states"] >= 3
    together = services.translate(url, *(ask(f"word {number}") for number in range(4)))
    answers = [exchange.answer for exchange in together if isinstance(exchange, Exchange)]
    assert len(answers) == 4
    last = health["plan"]["states"] - 1
    assert sorted(answer.report[0] for answer in answers) == sorted([COLD, 2, min(3, last), min(4, last)])
    # One after the other, whatever the order in which they arrived: between the first question and the last answer there is
    # time for all executions, and each answer's own time covers its queue and its execution.
    exchanges = [exchange for exchange in together if isinstance(exchange, Exchange)]
    whole_s = max(exchange.received_s for exchange in exchanges) - min(exchange.sent_s for exchange in exchanges)
    assert whole_s >= sum(answer.times.execution_s for answer in answers) - 1e-5  # rounded to a microsecond
    for answer in answers:
        assert 0.0 <= answer.times.queue_s <= answer.times.total_s - answer.times.execution_s + 1e-5
    name, score = answers[0].texts[0].rsplit(" ", 1)
    assert name in ("class 0", "class 1")
    assert 0.5 <= float(score) <= 1.0
    services.wait(0.5)  # a busy box may make it a second longer
    (first,) = services.translate(url, ask())
    services.wait(2.1)
    (cold,) = services.translate(url, ask())
    assert [exchange.answer.report for exchange in (first, cold)] == [(FIRST_TURN,), (COLD,)]
    services.stop(server)


@pytest.mark.deep
def test_a_store_damaged_in_service_gives_status_500_and_the_service_goes_on(services: Services, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write_store(made_weights(layers=3, heads=4, width=32, ffn=64), folder)
    server = services.server(engine_for(folder, cache_bytes=None, preload_bytes=0, engagement_gap_s=0.0))
    url, shards = server.front.service.url, folder / "shards.bin"
    good = shards.read_bytes()
    shards.write_bytes(bytes(len(good)))
    (failed,) = services.translate(url, ask())
    assert isinstance(failed, ServiceError)
    assert (failed.status, str(folder) in failed.message) == (500, False)
    shards.write_bytes(good)
    (answered,) = services.translate(url, ask())
    assert answered.answer.report == (COLD,)
    services.stop(server)


@pytest.mark.deep
def test_a_store_of_another_model_is_refused(services: Services, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_store(made_weights(layers=3, heads=4, width=32, ffn=64, seed=4), other)
    engine = streamed_engine(other, settings_for(path), threads=1)
    with pytest.raises(NmtError, match="shards of another model"):
        services.server(engine)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from simnmt.cli import main; main()", "live", "stream-server", *arguments]


def test_the_command_serves_by_a_profile_and_drains_on_sigterm(path: Path, tmp_path: Path, services: Services) -> None:
    content = whole_profile(name="box")
    content["sti"] = sti_block(3, 4, 32, 64, lengths=(LENGTH,), bytes_per_s=4e6, importance=False)
    with ShardStore.open(path) as store:
        content["sti"]["fingerprint"] = store.fingerprint
    profile = tmp_path / "box.json"
    profile.write_text(json.dumps(content), encoding="utf-8")
    command = _command(
        str(path), "--profile", str(profile), "--deadline", "50ms", "--preload", "5kB", "--listen", "127.0.0.1:0", "--json"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        assert server.stdout is not None
        begin = json.loads(server.stdout.readline())
        assert begin["plan"]["deadline_s"] == 0.05
        (exchange,) = services.translate(begin["url"], ask())
        assert exchange.answer.report == (COLD,)
        server.send_signal(signal.SIGTERM)
        end = json.loads(server.stdout.readline())
        assert server.wait(20) == 0
    assert end["outcomes"] == {"done": 1}


def test_a_command_without_a_plan_is_refused_in_one_line(path: Path, simnmt: Callable[..., Outcome]) -> None:  # noqa: F811
    ended = simnmt("live", "stream-server", str(path))
    assert ended.status == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert "--profile" in ended.err
