"""A unit of work: one workload on one network in one replication, under every policy.

Units share nothing, so any number of processes runs them and the numbers stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.network.configuration import Network
from simnmt.policies.cnmt import PredictLength
from simnmt.results.misroutes import lost_s
from simnmt.results.request_log import STREAMED_COLUMNS, Passage, RequestLog, Truth
from simnmt.results.streamed import BoxesAccount, StreamAccount, stream_account
from simnmt.results.summary import BatchesOfDevice, Device, RunKey, measure
from simnmt.scenario.build import Case
from simnmt.scenario.deciding import Deciding, deciding
from simnmt.scenario.drawing import Drawn, draw
from simnmt.scenario.gaps import subject, truths_told
from simnmt.scenario.learning import Learnt, learn
from simnmt.scenario.model import Scenario
from simnmt.scenario.rtt_clock import estimate_age_s
from simnmt.scenario.saturation import saturated_s
from simnmt.scenario.servers import decider_server, pools
from simnmt.world.simulate import simulate
from simnmt.world.streamed import StreamedAccount


@dataclass(frozen=True, slots=True)
class Unit:
    """What a process needs to run one."""

    scenario: Scenario
    case: Case
    network: str
    links: Network
    replication: int
    folder: Path | None = None
    """Where its columns are to lie, a folder that is not there yet; None: in the system's, for this process alone."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What comes back."""

    numbers: dict[RunKey, dict[str, float | None]]
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least on another device than the first."""
    mean_transfer_s: float
    """To the last device and back."""
    learnt: Learnt
    gap_totals_s: dict[str, float]
    """Total latency by variant of the gap analysis; empty without one."""
    truth: Truth | None
    """Replication 0 alone brings its requests back."""
    passages: dict[str, Passage]


def run_unit(unit: Unit) -> UnitResult:
    """Draw the requests of a unit and run them under every policy of the scenario. Raises `OSError` where no room is left."""
    if unit.folder is None:
        with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as folder:
            return run_unit(replace(unit, folder=Path(folder) / "unit"))
    unit.folder.mkdir()
    scenario, case, replication = unit.scenario, unit.case, unit.replication
    learnt = learn(case, tuple(scenario.devices), scenario.fit, scenario.seed, replication)
    drawn = draw(scenario, case, unit.network, unit.links, learnt, replication, unit.folder)
    numbers: dict[RunKey, dict[str, float | None]] = {}
    passages: dict[str, Passage] = {}
    for number, (name, configuration) in enumerate(scenario.policies.items()):
        how = deciding(scenario, case, learnt, drawn, configuration, replication)
        # Numbered, not named: a policy may be called what no file can.
        measured, passage = _under_policy(unit, drawn, how, unit.folder / str(number))
        numbers[RunKey(case.name, unit.network, name, replication)] = measured
        if passage is not None:
            passages[name] = passage
    return UnitResult(
        numbers=numbers,
        best_offloaded_share=float((drawn.truth.best_target != 0).mean()),
        mean_transfer_s=float(drawn.truth.transfer_s[-1][:].mean()),
        learnt=learnt,
        gap_totals_s=_gap_totals_s(unit, learnt, drawn),
        truth=drawn.truth if replication == 0 else None,
        passages=passages,
    )


def devices(scenario: Scenario, workload: str) -> list[Device]:
    """The devices that a workload meets, in the targets' order."""
    return [
        Device(
            name,
            scenario.count_of(name, workload),
            part.workers,
            None if part.batching is None else part.batching.size,
            part.sti is not None,
        )
        for name, part in scenario.devices.items()
    ]


def _under_policy(unit: Unit, drawn: Drawn, how: Deciding, folder: Path) -> tuple[dict[str, float | None], Passage | None]:
    """The numbers of one policy; and its passage, in files of a folder, as far as it is wanted: in replication 0."""
    passage = _passage(unit, drawn, how, judged=True)
    of_unit = devices(unit.scenario, unit.case.name)
    lost = lost_s(drawn.truth, passage) if known_misroutes(unit.scenario, unit.case) else None
    log, discipline = RequestLog(drawn.truth, passage), unit.case.arrivals.discipline
    numbers = measure(log, lost, of_unit, discipline, _batched(unit.case, drawn.truth, passage), passage.streams)
    if how.predicted_tgt_len is None:
        # Who predicts nothing uses no estimate of the transfer time, so there is none to be old.
        numbers["mean_estimate_age_s"] = None
    numbers["probes_sent"] = float(passage.probes)
    numbers["rtt_pace_s"] = drawn.pace_s
    if unit.replication != 0:
        return numbers, None
    folder.mkdir()
    return numbers, passage.stored(folder)


def _batched(case: Case, truth: Truth, passage: Passage) -> list[BatchesOfDevice | None]:
    """What each target's batches were, and how long they would have taken if always full; empty where none batched."""
    found: list[BatchesOfDevice | None] = []
    for number, (account, decoding) in enumerate(zip(passage.batches, case.decoding, strict=False)):
        if account is None or decoding is None:
            found.append(None)
            continue
        there = np.flatnonzero(passage.target[:] == number)
        found.append(BatchesOfDevice(account, saturated_s(decoding, truth.src_len[there], truth.tgt_len[there])))
    return found


def _gap_totals_s(unit: Unit, learnt: Learnt, drawn: Drawn) -> dict[str, float]:
    scenario = unit.scenario
    name = subject(scenario) if scenario.gap_analysis else None
    if name is None:
        return {}
    totals_s = {}
    for removed, told in truths_told(unit.case.queues, unit.case.streams).items():
        how = deciding(scenario, unit.case, learnt, drawn, scenario.policies[name], unit.replication, told)
        totals_s[removed] = float(RequestLog(drawn.truth, _passage(unit, drawn, how))["latency_s"].sum())
    return totals_s


def known_misroutes(scenario: Scenario, case: Case) -> bool:
    """Whether misroutes are known: where requests queue, or a streamed model's state matters, only an oracle foresees them."""
    return not (case.queues or case.streams) or _judged_share(scenario, case) > 0.0


JUDGED = 2_000
"""Decisions of a run that are judged by an oracle's foresight where requests queue: 5 to 15 us each, thrice a decision."""


def _judged_share(scenario: Scenario, case: Case) -> float:
    """Share of the requests whose decisions are judged by an oracle's foresight; 0 if that is too dear or not needed.

    Where nothing waits and no device's state matters, what each device takes alone says it all.
    """
    if case.batches or case.streams:
        return float(scenario.foresee_misroutes)
    return min(JUDGED / scenario.requests, 1.0) if case.queues else 0.0


def _passage(unit: Unit, drawn: Drawn, how: Deciding, *, judged: bool = False) -> Passage:
    scenario, case = unit.scenario, unit.case
    first, workers = next((name, device.workers) for name, device in scenario.devices.items())
    deciders = scenario.count_of(first, case.name)
    trail = simulate(
        drawn.requests,
        how.decide_for,
        how.beliefs,
        pools(scenario, case, unit.replication),
        deciders=deciders,
        workers=workers,
        predicted_for=how.predicted_for,
        route=drawn.route,
        clients=drawn.clients,
        judged_share=_judged_share(scenario, case) if judged else 0.0,
        **_of_batches_and_streams(scenario, case, how),
    )
    decided_s = trail.decided_s
    node = drawn.requests.node if trail.node is None else trail.node
    assert node is not None
    server = np.where(trail.target == 0, node[:] % deciders, trail.server).astype(np.int32)
    moments_s = drawn.moments_s
    if moments_s is not None and drawn.decided_order is not None:
        moments_s = moments_s[drawn.decided_order]
    columns: dict[str, Any] = {
        "target": trail.target,
        "server": server,
        "queue_s": trail.queue_s,
        "estimate_s": trail.estimate_s,
        "estimate_age_s": estimate_age_s(trail.arrival_s, decided_s, trail.measured_at_s, moments_s),
    }
    # Those that batches or streamed models alone have, where there are any.
    names = ("execution_s", "first_token_s", "lost_s", *STREAMED_COLUMNS)
    columns |= {name: column for name in names if (column := getattr(trail, name, None)) is not None}
    if drawn.decided_order is not None:
        columns = {name: _undone(column, drawn.decided_order) for name, column in columns.items()}
    passage = Passage(
        arrival_s=trail.arrival_s if drawn.issued_s is None else drawn.issued_s,
        **columns,
        tgt_len_by_src_len=_by_src_len(how.predicted_tgt_len, int(drawn.truth.src_len[:].max())),
        probes=trail.probes,
        truth=drawn.own_truth(trail.arrival_s, node),
        batches=trail.batches,
    )
    if not case.streams:
        return passage
    log = RequestLog(drawn.truth, passage)
    return replace(passage, streams=_streams(log, passage, trail.streamed))


def _of_batches_and_streams(scenario: Scenario, case: Case, how: Deciding) -> dict[str, Any]:
    """What the world is told besides where servers batch, or stream their model."""
    options: dict[str, Any] = {}
    if case.batches or case.streams:
        options["own"] = decider_server(case)
    if case.batches:
        options["predicted_tgt_len_for"] = how.predicted_tgt_len_for
    if case.streams:
        options["plan_beyond_for"] = how.plan_beyond_for
    return options


def _streams(log: RequestLog, passage: Passage, accounts: Sequence[StreamedAccount | None]) -> tuple[StreamAccount | None, ...]:
    """What each target's streamed model did; None where it has none."""
    end_s = float((log["arrival_s"] + log["latency_s"]).max())

    def account(target: int, its: StreamedAccount | None) -> StreamAccount | None:
        if its is None:
            return None
        boxes = BoxesAccount(
            boxes=its.boxes,
            compute_s=its.compute_s,
            read_s=its.read_s,
            read_bytes=its.read_bytes,
            peak_buffer_bytes=its.peak_preload_bytes,
            peak_shard_bytes=its.peak_shard_bytes,
            buffer_byte_s=its.preload_byte_s(end_s),
            working_bytes=its.working_bytes,
        )
        return stream_account(log, target, len(its.by_state), boxes, None if passage.lost_s is None else passage.lost_s[:])

    return tuple(account(target, its) for target, its in enumerate(accounts))


def _undone(column: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """From the order of the decisions back to that of the requests."""
    issued = np.empty_like(column)
    issued[order] = column
    return issued


def _by_src_len(predict: PredictLength | None, longest: int) -> NDArray[np.float64]:
    lengths = np.full(longest + 1, np.nan)
    if predict is not None:
        lengths[1:] = predict(np.arange(1, longest + 1))
    return lengths
