"""What a reader needs to judge the numbers of a run: fits as rows, and notes and warnings as sentences.

The sentences are templates, filled from the facts of a workload, a device, a streamed model, or a cell of the summary.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np

from simnmt.base.suggestions import format_list
from simnmt.batching.custom import CustomBatching
from simnmt.devices.streaming_configuration import MEGABYTE
from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.draws import Learnt
from simnmt.experiment.energy_setup import describe_energy
from simnmt.experiment.fault_setup import describe_faults, lost_requests
from simnmt.experiment.inputs import outside_share
from simnmt.experiment.targets import Target
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries
from simnmt.profile.execution_plane import PlaneFit
from simnmt.profile.profile_variant import as_calibrated
from simnmt.results.device_accounts import PlannedDevice, PlannedState
from simnmt.results.number_text import digits, duration
from simnmt.results.run import Cell, format_sources, shown_kind
from simnmt.results.summary import Row, by_cell
from simnmt.results.warm_up import warm_up_notes
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.source import describe_separate_runs
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.arrivals.recording import RecordedProcess
from simnmt.workload.configuration import SyntheticLengths

ILL_CONDITIONED = 30.0
"""Condition number from which single coefficients mean little, though their sum predicts (Belsley's rule of thumb)."""
OFF_PACE = 3.0
"""Ratio of the clock's pace to the time of a request, up or down, from which a run is marked."""

# Templates by the fact that they need: a sentence is written if that fact is known and not 0.
WORKLOAD = {
    "table": "{table.pairs:,} length pairs of {table.source}, counted by {table.src_unit} and {table.tgt_unit}; in each "
    "replication {fitted:,} of them are set apart for fitting, and the {requests:,} requests drawn from the other {others:,}",
    "outliers": "requests are also drawn from {drawn:,} of the {outliers.pairs:,} dropped pairs with text",
    "ends": "the lengths count ends of sentences: {ends}",
    "filtered": "filter {filtered}",
    "drawn_lengths": "no text lies behind the pairs: both lengths are drawn",
    "of_text": "the target length is the reference translation's, in place of a model's own output",
    "remark": "{remark}",
    "arrivals": "{arrivals.account}",
    "models": "the devices run different models ({models}); only latency is compared, not quality",
}
DEVICE = {
    "profile": "profile {profile.name} of {profile.device.name} ({target.kind})",
    "overhead": "overhead {overhead}, which requests for it or beyond pay in their transfer time",
    "outside": "{outside:.2f} % of the pairs lie outside the range of the profile",
    "conversion": "the profile counts by {conversion.src_unit} and {conversion.tgt_unit}, of which a token of the workload "
    "makes {conversion.src:.3g} and {conversion.tgt:.3g} on average ({counted}); single sentences differ",
    "decoder": "{decoder}",
    "active_together": "a step takes the mean over active shares of as many sentences as decode together, which grow with "
    "their number",
    "active_alone": "a request's active share is drawn from those of single sentences, {active_alone} %, and moves its steps "
    "along a line through timed steps; policies assume the mean",
    "calibrated": "{calibrated}",
    "batching": "decodes up to {batching.size} sentences together, by step costs of beam {cost.beam} that are known up to "
    "batches of {cost.most_batch} and without the residual of single executions; policies learn only its time for a request "
    "alone",
    "custom": "{custom.extension.label} forms the batches",
    "collected": "{collected:,} sentences are collected and sorted by source length",
    "threshold": "a batch is refilled when at most {threshold} of it are left",
    "free_refills": "joining a running batch costs nothing (refill: free)",
    "longest_wait": "the first sentence of a batch waits {longest_wait}",
    "beyond": "step costs of larger batches are extrapolated",
    "unmeasured": "not in profile {profile.name}, so counted as 0 s: {unmeasured}",
    "collinear": "target lengths follow from source lengths, so these do not determine the plane's coefficients; the smallest "
    "that fit were taken",
    "condition": "source and target lengths move together (condition number {condition:.0f}), so the fitted plane's single "
    "coefficients mean little; its predictions hold",
}
STREAMED = {
    "planned": "streams {planned.model} from its disk: {size}, planned once for all boxes for {planned.src_len} source and "
    "{planned.tgt_len} target tokens within {deadline}",
    "settings": "buffers: preload {preload}, cache {cache} within an engagement, {working} for the layer that is computed; "
    "requests within {gap} of the last answer are turns of one engagement, after which {kept}; the system reclaims it "
    "{reclaimed}",
    "cold": "a cold start reads {cold} that are in no shard ahead of the first layer",
    "cold_unknown": "what a cold start reads beside shards is in no profile and counted as nothing (cold_read_mb sets it)",
    "states": "predicted at an idle box, {planned.kind} profile: {states}; the loss of quality by fewer layers, slices and "
    "bits was not measured",
    "changes": "planned {planned.plannings} times in all: {changes}; policies keep to the times of the first plan",
    "late": "the deadline of {deadline} is not met in these states: {late}",
    "short": "the disk is too slow to read 2 bits of every weight in time in: {short}",
    "unfilled": "no shard fits into the preload buffer of {preload}",
}
CELL = {
    "pace": "RTT clock {clock}: {pace} of trace pass from one request to the next, whatever the policy",
    "off": "the RTT changes, and transfer estimates age, {times} times as fast as the time of requests under {off}: {remedy}",
    "overloaded": "no steady state under {overloaded}; totals, changes and latencies there depend on how long the run lasts",
}


def _fill(templates: Mapping[str, str], place: str, facts: Mapping[str, Any]) -> Iterator[str]:
    for fact, template in templates.items():
        if facts.get(fact):
            yield f"{place}: {template.format_map(facts)}."


def notes(plan: RunPlan, learnt: dict[str, Learnt], rows: Sequence[Row]) -> list[str]:
    """Return the sentences that a reader needs to judge the numbers.

    Args:
        plan: the scenario with its inputs.
        learnt: by workload, the knowledge of replication 0.
        rows: the rows of the summary.
    """
    scenario = plan.scenario
    lines = [scenario.description] if scenario.description else []
    lines += describe_scope(plan)
    for case in plan.cases.values():
        lines += _workload_notes(plan, case, learnt[case.name])
        for target, fit in zip(case.targets, learnt[case.name].plane_fits, strict=True):
            lines += _device_notes(scenario, case, target, fit)
            if target.streaming is not None:
                lines += _streaming_notes(scenario, case, target, target.streaming.planned)
    lines += [f"{message}." for message in (*lost_requests(rows), *_doubts(plan))]
    lines += _link_notes(plan)
    lines += describe_faults(plan, rows)
    lines += describe_energy(scenario, plan.cases)
    lines += _cell_notes(scenario, rows)
    lines += warm_up_notes(rows, by_rule=scenario.warm_up == "mser5")
    if scenario.replications == 1:
        lines.append("One replication: no intervals, so a difference may be chance.")
    return lines


def warnings(plan: RunPlan, rows: Sequence[Row]) -> list[str]:
    """Return the warnings about a run: its lengths, late streaming plans, lost requests, and doubts about profiles.

    `rows`: the rows of the summary.
    """
    of_lengths = [f"{case.name}: {warning}" for case in plan.cases.values() for warning in case.warnings]
    return [*of_lengths, *_late_plans(plan), *lost_requests(rows), *_doubts(plan)]


def describe_sources(plan: RunPlan) -> str:
    """Return a line on the kinds of the device profiles and of the round trips of a run."""
    targets = itertools.chain.from_iterable(case.targets for case in plan.cases.values())
    profiles = [(shown_kind(target.kind, bool(target.doubts)), target.device) for target in targets]
    return format_sources(profiles, [(network.link.rtt.kind, network.link.rtt.name) for network in plan.networks.values()])


def describe_scope(plan: RunPlan) -> Iterator[str]:
    """Yield what a run of several workloads, and the intervals over replications of a recording, do not cover."""
    if separate := describe_separate_runs(plan.scenario):
        yield f"{separate[0].upper()}{separate[1:]}."
    recorded = [case.name for case in plan.cases.values() if isinstance(case.arrivals, RecordedProcess)]
    if recorded and plan.scenario.replications > 1:
        yield (
            f"{format_list(recorded, 'and')}: all replications replay the same recording of arrivals, each from another moment "
            "on it. Intervals cover what else differs between replications, and not the traffic of another time."
        )


def _doubts(plan: RunPlan) -> list[str]:
    """Return the effect of every doubt about a profile once, with all devices that use it."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for target in itertools.chain.from_iterable(case.targets for case in plan.cases.values()):
        for effect in target.doubts:
            users.setdefault((target.profile.name, effect), {})[target.device] = None
    return [f"profile {name} ({', '.join(by)}): {effect}" for (name, effect), by in users.items()]


def _workload_notes(plan: RunPlan, case: Case, learnt: Learnt) -> Iterator[str]:
    yield from (f"{case.name}: {warning}." for warning in case.warnings)
    table, fitted = case.table, learnt.fit_pairs.pairs
    is_drawn = isinstance(plan.scenario.workloads[case.name].lengths, SyntheticLengths)
    models = list(dict.fromkeys(profile.model.name for profile in case.profiles))
    facts = {
        "table": table,
        "fitted": fitted,
        "others": table.pairs - fitted,
        "requests": plan.scenario.requests,
        "outliers": case.outliers,
        "drawn": learnt.evaluated_pairs.pairs - (table.pairs - fitted),
        "ends": None if table.end_of_sentence == "none" else table.end_of_sentence,
        "filtered": None if " 0 dropped" in (table.filtered or "") else table.filtered,
        "drawn_lengths": is_drawn,
        "of_text": not is_drawn,
        "remark": learnt.lengths.remark,
        "arrivals": case.arrivals,
        "models": format_list(models, "and") if len(models) > 1 else None,
    }
    yield from _fill(WORKLOAD, case.name, facts)


def _device_notes(scenario: ScenarioConfiguration, case: Case, target: Target, fit: PlaneFit | None) -> Iterator[str]:
    profile, decoder, decoding, conversion = target.profile, target.decoder, target.decoding, target.conversion
    overhead, calibrated = scenario.devices[target.device].overhead, as_calibrated(profile)
    facts: dict[str, Any] = {
        "target": target,
        "profile": profile,
        "overhead": None if overhead is None else overhead.describe(),
        "outside": 100.0 * outside_share(profile, case.replayed),
        "conversion": conversion,
        "counted": "counted on the corpus" if conversion is not None and conversion.counted else "as stated",
        "calibrated": None if decoder is not None or calibrated is None or calibrated.exact else calibrated.short,
    }
    if decoder is not None:
        facts["decoder"] = decoder.describe()
        facts["active_together"] = decoding is not None and decoder.describe_active()
        if decoding is None and decoder.varies and decoder.alone is not None and decoder.alone.active is not None:
            least, *_, most = decoder.alone.active.by_sentence or (0.0, 0.0)
            facts["active_alone"] = f"{100.0 * least:.3g} to {100.0 * most:.3g}"
    if decoding is not None:
        batching, cost = decoding.batching, decoding.cost
        facts |= {"batching": batching, "cost": cost}
        facts |= {"free_refills": decoding.free_refills, "unmeasured": ", ".join(_unmeasured_batch_costs(target))}
        facts["beyond"] = batching.size > cost.most_batch
        if isinstance(batching, CustomBatching):
            facts["custom"] = batching
        else:
            wait_s = batching.longest_wait_s
            facts |= {"collected": batching.collected, "threshold": batching.threshold}
            facts["longest_wait"] = wait_s and ("until it can be filled" if isinf(wait_s) else f"up to {duration(wait_s)}")
    if fit is not None:
        facts["collinear"] = fit.collinear
        facts["condition"] = None if fit.collinear or fit.condition_number <= ILL_CONDITIONED else fit.condition_number
    yield from _fill(DEVICE, f"{case.name}, {target.device}", facts)


def _unmeasured_batch_costs(target: Target) -> list[str]:
    """Return the costs of batching, other than steps and encoder, for which the profile has no figure."""
    profile, decoding = target.profile, target.decoding
    if decoding is None:
        return []
    known = {} if profile.overheads is None else profile.overheads.known_s
    gap, gap_per_sentence = "step_gap_s" in known, "step_gap_s_per_sentence" in known
    parts = {
        "the gap between two steps": gap or gap_per_sentence,
        "what each sentence adds to the gap between two steps": gap_per_sentence or not gap,
        "joining a batch (refilling)": profile.knows_refills or decoding.free_refills,
        "leaving it": "leave_s" in known,
        "what a longer source adds to a step": profile.step is not None and profile.step.s_per_row_src_token is not None,
    }
    return [part for part, is_known in parts.items() if not is_known]


def _streaming_notes(scenario: ScenarioConfiguration, case: Case, target: Target, planned: PlannedDevice) -> Iterator[str]:
    settings = scenario.devices[target.device].sti
    assert settings is not None
    kept = "preload buffer and cache are kept" if settings.keeps_cache else "the preload buffer is kept"
    facts = {
        "planned": planned,
        "settings": settings,
        "size": _describe_size(planned, planned.states[0]),
        "deadline": duration(planned.deadline_s),
        "preload": _megabytes(planned.preload_bytes),
        "cache": _megabytes(max(planned.cache_bytes, planned.preload_bytes)),
        "working": _megabytes(planned.working_bytes),
        "cold": planned.cold_read_bytes and _megabytes(planned.cold_read_bytes),
        "cold_unknown": planned.cold_read_bytes is None,
        "gap": duration(settings.engagement_gap_s),
        "kept": kept if settings.keeps_cache or settings.keeps_preload else "nothing is kept",
        "reclaimed": "never" if settings.reclaimed_after_s is None else f"after {duration(settings.reclaimed_after_s)} idle",
        "states": "; ".join(map(_describe_state, planned.states)),
        "changes": "; ".join(
            f"from {duration(change.at_s)} on for {duration(change.deadline_s)} and {_megabytes(change.preload_bytes)}: "
            f"{'; '.join(map(_describe_state, change.states))}"
            for change in planned.changes
        ),
        "late": ", ".join(state.name for state in planned.states if _is_late(state, planned.deadline_s)),
        "short": ", ".join(state.name for state in planned.states if state.short_of_io),
        "unfilled": planned.preload_bytes > planned.states[1].held_bytes == 0,
    }
    yield from _fill(STREAMED, f"{case.name}, {target.device}", facts)


def _describe_size(planned: PlannedDevice, state: PlannedState) -> str:
    decoder = f" and {state.decoder_layers} of {planned.all_decoder_layers} decoder" if planned.all_decoder_layers else ""
    return f"{state.layers} of {planned.all_layers} encoder{decoder} layers x {state.slices} of {planned.all_slices} slices"


def _describe_state(state: PlannedState) -> str:
    bits = format_list((f"{width} ({count})" for width, count in state.bits), "and")
    stall = f" ({duration(state.stall_s)} of it stalled)" if state.stall_s > 1e-9 else ""
    return f"{state.name} {duration(state.latency_s)}{stall}, reads {_megabytes(state.read_bytes)}, shards by bits {bits}"


def _megabytes(count: int) -> str:
    return f"{digits(count / MEGABYTE)} MB"


def _is_late(state: PlannedState, deadline_s: float) -> bool:
    return state.latency_s > deadline_s * (1.0 + 1e-9)


def _late_plans(plan: RunPlan) -> Iterator[str]:
    """Yield the streamed devices whose first turn is late even with a filled preload buffer, and the size of their plans."""
    for case in plan.cases.values():
        for target in case.targets:
            if target.streaming is None:
                continue
            planned = target.streaming.planned
            plans = [(0.0, planned.deadline_s, planned.states)]
            plans += [(change.at_s, change.deadline_s, change.states) for change in planned.changes]
            for at_s, deadline_s, (_, turn, *_) in plans:
                if _is_late(turn, deadline_s):
                    since = f" from {duration(at_s)} on" if at_s else ""
                    yield (
                        f"{case.name}, {target.device}: streamed model planned{since} as {_describe_size(planned, turn)}, the "
                        f"deadline of {duration(deadline_s)} is not met even so: {turn.name} takes {duration(turn.latency_s)} "
                        "(set a longer deadline_ms or more preload_mb)"
                    )


def _link_notes(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence on each link."""
    scenario = plan.scenario
    has_moments = not any(isinstance(part.arrivals, BackToBack) for part in scenario.workloads.values())
    described: dict[Link, str] = {}
    for name, network in plan.networks.items():
        described.setdefault(network.link, _describe_link(network.link))
        for link in itertools.chain(*network.hops.values()):
            described.setdefault(link, _describe_link(link))
        spread = any(scenario.clock_of(workload, name) == "spread" for workload in scenario.workloads)
        may_fail = has_moments and not spread and len(scenario.devices) > 1 and scenario.networks[name].outages is None
        if may_fail and network.link.rtt.lost_spans_s:
            described[network.link] += f" Requests feel lost samples only with --set networks.{name}.outages=trace."
    yield from described.values()


def _describe_link(link: Link) -> str:
    parts = [f"{link.rtt.name}: {link.rtt.kind} RTT series, mean {link.rtt.mean_s * 1e3:.1f} ms{_describe_lost(link.rtt.lost)}"]
    for direction, bandwidth in (("uplink", link.uplink_bps), ("downlink", link.downlink_bps)):
        if isinstance(bandwidth, BandwidthSeries):
            median = f"median {float(np.median(bandwidth.rate_bps)) / 1e6:.3g} Mbit/s{_describe_lost(bandwidth.lost)}"
            parts.append(f"{direction}: {bandwidth.kind} series of {bandwidth.source}, {median}")
    return f"{'; '.join(parts)}."


def _describe_lost(samples: int) -> str:
    return f", lost samples: {samples}, held at the value before" if samples else ""


def _cell_notes(scenario: ScenarioConfiguration, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the pace of the RTT clock where no policy moves it, and the policies without a steady state, by place."""
    for (workload, network), of_cell in by_cell(rows).items():
        pace_s, clock = of_cell[0]["rtt_pace_s"], scenario.clock_of(workload, network)
        ratios = {row["policy"]: pace_s * row["throughput_rps"] for row in of_cell if pace_s and row["throughput_rps"] > 0.0}
        off = {policy: ratio for policy, ratio in ratios.items() if not 1.0 / OFF_PACE <= ratio <= OFF_PACE}
        ends = dict.fromkeys(f"{end:.3g}" for end in (min(off.values()), max(off.values()))) if off else ()
        facts = {
            "pace": pace_s and duration(pace_s),
            "clock": clock,
            "off": ", ".join(off),
            "times": " to ".join(ends),
            "remedy": f"set networks.{network}.clock: pace, or networks.{network}.pace_s",
            "overloaded": ", ".join(f"{row['policy']} ({row['unstable']})" for row in of_cell if row.get("unstable")),
        }
        yield from _fill(CELL, f"{workload} on {network}", facts)


def stopped_sending(scenario: ScenarioConfiguration, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the policies that sent requests away only in the first half of replication 0, and so measured nothing after it."""
    for cell in cells:
        stopped = []
        for name, log in cell.logs.items():
            policy, target = scenario.policies[name], log["target"]
            away = np.flatnonzero(target[: len(target) // 2])
            may_send = not policy.knows_truth and not policy.single_device
            if may_send and away.size and not np.any(target[len(target) // 2 :]):
                stopped.append(f"{name} (request {int(away[-1]) + 1:,})")
        if stopped:
            yield (
                f"{cell.workload} on {cell.network}: in the second half of replication 0, no request was sent to another "
                f"device by {format_list(stopped)}; in brackets the last one sent. Later decisions rest on an estimate of the "
                "transfer time of that age."
            )


def fits(case: Case, learnt: Learnt) -> Iterator[Row]:
    """Yield one row per fit of one replication: the length regression, then each device's plane, with their errors."""
    lengths = learnt.lengths
    keys = ("len_slope", "len_offset", "pairs_r2", "pairs_mse", "means_r2", "means_mse")
    yield {
        "workload": case.name,
        "of": "target length over source length",
        "kind": "fitted on the corpus's fit pairs",
        "samples": lengths.pairs,
        **{key: getattr(lengths, key) for key in keys},
    }
    for target, plane, fit in zip(case.targets, learnt.planes, learnt.plane_fits, strict=True):
        row: dict[str, Any] = {
            "workload": case.name,
            "of": f"execution time on the {target.device}",
            "profile": target.profile.name,
            "box": target.profile.device.name,
            "kind": f"{target.kind} profile" if fit is None else f"simulated calibration of the {target.kind} profile",
            "samples": 0 if fit is None else fit.inferences,
            "s_per_src_token": plane.s_per_src_token,
            "s_per_tgt_token": plane.s_per_tgt_token,
            "s_fixed": plane.s_fixed,
        }
        if target.decoder is not None:
            row["decoder"] = target.decoder.as_json()
        if fit is not None:
            condition = None if fit.collinear else fit.condition_number
            row |= {"r2": fit.r2, "mse_ms2": fit.mse_ms2, "condition_number": condition, "collinear": fit.collinear}
        yield row


def describe_engines(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the policies that the reference ran, and why; `reasons`: by policy."""
    by_reason: dict[str, list[str]] = {}
    for policy, reason in reasons.items():
        by_reason.setdefault(reason, []).append(policy)
    for reason, policies in by_reason.items():
        yield f"The reference ran {format_list(policies, 'and')}, some 100 times as slow as the compiled engine: {reason}."


def describe_bound(plan: RunPlan) -> Iterator[str]:
    """Yield what the oracle's latency bounds, if not all."""
    oracles = [name for name, policy in plan.scenario.policies.items() if policy.knows_truth]
    if oracles and any(case.batches for case in plan.cases.values()):
        yield f"At a device that batches, later requests join: {oracles[0]} counts the steps left there and is no bound."
