"""Describe for a reader what the numbers of a run rest on: fits as rows, warnings about the input, and notes as sentences.

The notes cover lengths, devices, links, clocks, batches, streamed models, overload, and the spread over replications.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import isinf
from typing import Any

import numpy as np

from simnmt.base.suggestions import format_list
from simnmt.batching.custom import CustomBatching
from simnmt.experiment.cases import Case, RunPlan
from simnmt.experiment.draws import Learnt, describe_active_shares
from simnmt.experiment.energy_setup import describe_energy
from simnmt.experiment.fault_setup import describe_faults, lost_requests
from simnmt.experiment.inputs import outside_share
from simnmt.experiment.routes import describe_clocks
from simnmt.experiment.streaming_notes import describe_late_plans, describe_streaming
from simnmt.experiment.targets import Decoding, Target
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries
from simnmt.profile.blocks import Overhead, Overheads
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_variant import DecoderChoice, as_calibrated
from simnmt.results.number_text import duration
from simnmt.results.precision import spread_notes
from simnmt.results.result import Cell, format_sources, shown_kind
from simnmt.results.summary import Row, by_cell
from simnmt.results.warm_up import warm_up_notes
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.source import describe_separate_runs
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.arrivals.recording import RecordedProcess
from simnmt.workload.configuration import SyntheticLengths


def _describe_batching(decoding: Decoding, decoder: DecoderChoice | None) -> str:
    """Describe how a device batches and the source of its times; `decoder`: the variant that replaces the profile's."""
    batching, cost = decoding.batching, decoding.cost
    order = "in the order of arrival"
    if batching.collected is not None:
        order = f"collected by {batching.collected:,} and sorted by source length"
    refilled = "a batch begins when the one before is done"
    if batching.threshold:
        free = ", at no cost, as the scenario says (refill: free)" if decoding.free_refills else ""
        refilled = f"a batch is refilled when at most {batching.threshold} of its sentences are left{free}"
    wait = ""
    if batching.longest_wait_s > 0.0:
        long = "until it can be filled" if isinf(batching.longest_wait_s) else f"up to {duration(batching.longest_wait_s)}"
        wait = f", for which the first sentence waits {long}"
    formed = f"{order}; {refilled}{wait}"
    if isinstance(batching, CustomBatching):
        formed = f"in batches that {batching.extension.label} forms"
    beyond = ", extrapolated beyond" if batching.size > cost.most_batch else ""
    return (
        f"decodes up to {batching.size} sentences together, {formed}. Its times follow from lengths "
        f"(step costs of beam {cost.beam} measured up to batches of {cost.most_batch}{beyond}), without the residual of single "
        "executions; policies learn only its time for a request alone"
    )


def _unmeasured_batch_costs(profile: DeviceProfile, decoding: Decoding) -> list[str]:
    """Return the costs of batching, other than steps and encoder, for which the profile has no figure."""
    overheads = profile.overheads or Overheads()

    def known(overhead: Overhead | None) -> bool:
        return overhead is not None and overhead.value is not None

    gap, gap_per_sentence = known(overheads.step_gap_s), known(overheads.step_gap_s_per_sentence)
    parts = {
        "the gap between two steps": gap or gap_per_sentence,
        "what each sentence adds to the gap between two steps": gap_per_sentence or not gap,
        "joining a batch (refilling)": profile.knows_refills or decoding.free_refills,
        "leaving it": known(overheads.leave_s),
        "what a longer source adds to a step": profile.step is not None and profile.step.s_per_row_src_token is not None,
    }
    return [part for part, is_known in parts.items() if not is_known]


def _describe_endless_waits(plan: RunPlan) -> Iterator[str]:
    """Yield where a batch may wait for ever, so that an oracle cannot foresee when it begins."""
    scenario = plan.scenario
    foreseeing = [name for name, policy in scenario.policies.items() if policy.knows_truth]
    foreseeing += ["the misroutes (foresee_misroutes)"] if scenario.foresee_misroutes else []
    foreseeing += ["the gap analysis"] if scenario.gap_analysis else []
    for case in plan.cases.values():
        decodings = {target.device: target.decoding for target in case.targets if target.decoding is not None}
        endless = [device for device, decoding in decodings.items() if isinf(decoding.batching.longest_wait_s)]
        if case.batches and endless and foreseeing:
            yield (
                f"{case.name}, {', '.join(endless)}: a batch may wait for company for ever (longest_wait_ms: null), and when "
                f"it begins depends on later arrivals. That is not foreseen by {', '.join(foreseeing)}, which assume that it "
                "begins at once: the choice that they judge fastest need not be, and is no bound. A finite wait is foreseen."
            )


def _describe_unused_settings(scenario: Scenario) -> Iterator[str]:
    """Yield settings without effect because no device batches or streams; they are allowed, so that both can be removed."""
    devices, policies = scenario.devices.values(), scenario.policies.items()
    streams = any(device.sti is not None for device in devices)
    if not any(device.batching is not None for device in devices):
        estimations = {name: policy.estimation for name, policy in policies}
        hearing = [name for name, known in estimations.items() if known.hears_batches and not known.sees_backlog]
        if hearing:
            yield f"No device batches, so nothing is reported of a batch to {', '.join(hearing)}."
        if scenario.foresee_misroutes and not streams:
            yield "No device batches or streams its model, so foresee_misroutes changes nothing."
    knowing = [name for name, policy in policies if policy.estimation.plan_state != "ignored"]
    if knowing and not streams:
        yield f"No device streams its model, so there is no state of a plan to be known by {', '.join(knowing)}."


ILL_CONDITIONED = 30.0
"""Condition number from which single coefficients mean little, though their sum predicts (Belsley's rule of thumb)."""


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


def warnings(plan: RunPlan, rows: Sequence[Row]) -> list[str]:
    """Return the warnings about a run: its lengths, late streaming plans, and doubts about profiles.

    `rows`: the rows of the summary.
    """
    of_lengths = [f"{case.name}: {warning}" for case in plan.cases.values() for warning in case.warnings]
    of_plans = list(describe_late_plans(plan))
    return [*of_lengths, *of_plans, *lost_requests(rows), *_describe_doubts(plan)]


def describe_sources(plan: RunPlan) -> str:
    """Return a line on the kinds of the device profiles and of the round trips of a run."""
    targets = list(itertools.chain.from_iterable(case.targets for case in plan.cases.values()))
    profiles = [(shown_kind(target.kind, bool(target.doubts)), target.device) for target in targets]
    return format_sources(profiles, [(network.link.rtt.kind, network.link.rtt.name) for network in plan.networks.values()])


def _describe_doubts(plan: RunPlan) -> list[str]:
    """Return the effect of every doubt about a profile once, with all devices that use it."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for target in itertools.chain.from_iterable(case.targets for case in plan.cases.values()):
        for effect in target.doubts:
            users.setdefault((target.profile.name, effect), {})[target.device] = None
    return [f"profile {name} ({', '.join(by)}): {effect}" for (name, effect), by in users.items()]


def notes(plan: RunPlan, learnt: dict[str, Learnt], rows: Sequence[Row]) -> list[str]:
    """Return the sentences that a reader needs to judge the numbers.

    Args:
        plan: the scenario with its inputs.
        learnt: by workload, the knowledge of replication 0.
        rows: the rows of the summary.
    """
    lines = [plan.scenario.description] if plan.scenario.description else []
    lines += describe_scope(plan)
    for case in plan.cases.values():
        lines += _describe_lengths(plan, case, learnt[case.name])
        lines.append(f"{case.name}: {case.arrivals.account}.")
        lines += _describe_devices(case, learnt[case.name])
        lines += _describe_overheads(plan.scenario, case)
        for target in case.targets:
            settings = plan.scenario.devices[target.device].sti
            if target.streaming is not None and settings is not None:
                sentences = describe_streaming(settings, target.streaming.planned)
                lines += [f"{case.name}, {target.device}: {sentence}." for sentence in sentences]
    lines += [f"{message}." for message in (*lost_requests(rows), *_describe_doubts(plan))]
    lines += _describe_links(plan)
    lines += _describe_shared_links(plan)
    lines += describe_faults(plan, rows)
    lines += describe_clocks(plan.scenario, rows)
    lines += _describe_unused_settings(plan.scenario)
    lines += _describe_endless_waits(plan)
    lines += describe_energy(plan.scenario, plan.cases)
    lines += _describe_overload(rows)
    lines += warm_up_notes(rows, by_rule=plan.scenario.warm_up == "mser5")
    lines += spread_notes(rows, plan.scenario.objective)
    if plan.scenario.replications == 1:
        lines.append("One replication: no intervals, so a difference may be chance.")
    return lines


def describe_scope(plan: RunPlan) -> Iterator[str]:
    """Yield what a run of several workloads, and the intervals over replications of a recording, do not cover."""
    if separate := describe_separate_runs(plan.scenario):
        yield f"{separate[0].upper()}{separate[1:]}."
    recorded = [case.name for case in plan.cases.values() if isinstance(case.arrivals, RecordedProcess)]
    if recorded and plan.scenario.replications > 1:
        yield (
            f"{format_list(recorded, 'and')}: all replications replay the same recording of arrivals, each from another moment "
            "on it. Intervals cover what differs between replications (these moments, lengths that are drawn, execution times, "
            "and where a series of round trips begins), and not the traffic of another time."
        )


def _describe_lengths(plan: RunPlan, case: Case, learnt: Learnt) -> Iterator[str]:
    for warning in case.warnings:
        yield f"{case.name}: {warning}."
    table, fit = case.table, learnt.fit_pairs.pairs
    counted = {"none": "", "source": ", sources with their end", "target": ", targets with their end", "both": ", ends counted"}
    synthetic = isinstance(plan.scenario.workloads[case.name].lengths, SyntheticLengths)
    reference = "The target length is the reference translation's, standing in for a model's own output."
    outliers = ""
    if case.outliers is not None:
        drawn = learnt.evaluated_pairs.pairs - (table.pairs - fit)
        outliers = f" and from {drawn:,} of the {case.outliers.pairs:,} dropped pairs with text on both sides"
    yield (
        f"{case.name}: {table.pairs:,} length pairs of {table.source}, counted by {table.src_unit} and {table.tgt_unit}"
        f"{counted[table.end_of_sentence]}; in each replication {fit:,} of them are set apart for fitting and the "
        f"{plan.scenario.requests:,} requests drawn with replacement from the other {table.pairs - fit:,}{outliers}. "
        f"{_describe_dropped_pairs(case)}{'No text lies behind them: both lengths are drawn.' if synthetic else reference}"
    )
    if learnt.lengths.remark:
        yield f"{case.name}: {learnt.lengths.remark}."
    if table.tgt_unit == "mixed" and learnt.lengths.len_slope > 1.0:
        yield (
            f"{case.name}: counted by Han character, a target is longer than its source ({learnt.lengths.len_slope:.2f} tokens "
            "a source token); the C-NMT paper counts subwords, of which Chinese needs fewer than English."
        )


def _describe_dropped_pairs(case: Case) -> str:
    """Describe the pairs that the filter dropped; empty if it dropped none, or if that is unknown."""
    filtered = case.table.filtered
    if not filtered or " 0 dropped" in filtered:
        return ""
    fitted = "The policies fit on the kept pairs alone"
    scope = "Neither the pairs that policies fit on nor the requests hold dropped pairs" if case.outliers is None else fitted
    return f"Filter {filtered}. {scope}. "


def stopped_sending(scenario: Scenario, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the policies that sent requests away only in the first half of replication 0, and so measured nothing after it."""
    for cell in cells:
        stopped = {}
        for name, log in cell.logs.items():
            policy = scenario.policies[name]
            if policy.knows_truth or policy.single_device:
                continue
            target = log["target"]
            away = np.flatnonzero(target[: len(target) // 2])
            if away.size and not np.any(target[len(target) // 2 :]):
                stopped[name] = f"{name} (request {int(away[-1]) + 1:,})"
        if stopped:
            yield (
                f"{cell.workload} on {cell.network}: in the second half of replication 0, no request was sent to another "
                f"device by {format_list(stopped.values())}; in brackets the last one sent, of {scenario.requests:,}. Only a "
                "request that is sent measures the transfer time, so later decisions rest on an estimate of that age."
            )


def _describe_links(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence on each link."""
    scenario = plan.scenario
    has_moments = not any(isinstance(part.arrivals, BackToBack) for part in scenario.workloads.values())
    described: dict[Link, str] = {}
    for name, network in plan.networks.items():
        remedy, spread = "", any(scenario.clock_of(workload, name) == "spread" for workload in scenario.workloads)
        may_fail = has_moments and not spread and len(scenario.devices) > 1 and scenario.networks[name].outages is None
        if may_fail and network.link.rtt.lost_spans_s:
            remedy = f"; requests feel them only with --set networks.{name}.outages=trace"
        described.setdefault(network.link, _describe_link(network.link, remedy))
        for link in itertools.chain(*network.hops.values()):
            described.setdefault(link, _describe_link(link))
    yield from described.values()


def _describe_link(link: Link, remedy: str = "") -> str:
    lost = f"{_describe_lost_samples(link.rtt.lost)}{remedy}"
    note = f"{link.rtt.name}: {link.rtt.kind} RTT series, mean {link.rtt.mean_s * 1e3:.1f} ms{lost}."
    for direction, bandwidth in (("uplink", link.uplink_bps), ("downlink", link.downlink_bps)):
        if isinstance(bandwidth, BandwidthSeries):
            median_mbps = float(np.median(bandwidth.rate_bps)) / 1e6
            series = f"{bandwidth.kind} series of {bandwidth.source}, median {median_mbps:.3g} Mbit/s"
            note += f" Its {direction}: {series}{_describe_lost_samples(bandwidth.lost)}."
    return note


def _describe_lost_samples(samples: int) -> str:
    return f"; lost samples: {samples}, held at the value before" if samples else ""


def _describe_shared_links(plan: RunPlan) -> Iterator[str]:
    """Yield the networks with shared links."""
    queued = [case.name for case in plan.cases.values() if case.queues]
    for name, network in plan.networks.items():
        if network.is_shared and queued:
            yield f"{name}: the messages of all end nodes share the bandwidth of each shared link equally, in either direction."
        elif network.is_shared:
            yield f"{name}: requests back to back never meet on a shared link, so that it changes nothing."


def _describe_devices(case: Case, learnt: Learnt) -> Iterator[str]:
    for target, fit in zip(case.targets, learnt.plane_fits, strict=True):
        yield from (f"{case.name}, {target.device}: {sentence}." for sentence in _describe_device(case, target))
        if fit is not None and fit.collinear:
            yield (
                f"{case.name}, {target.device}: target lengths follow from source lengths, so these do not determine the "
                "plane's coefficients; the smallest that fit were taken."
            )
        elif fit is not None and fit.condition_number > ILL_CONDITIONED:
            yield (
                f"{case.name}, {target.device}: source and target lengths move together (condition number "
                f"{fit.condition_number:.0f}), so the fitted plane's single coefficients mean little; its predictions hold."
            )
    models = list(dict.fromkeys(profile.model.name for profile in case.profiles))
    if len(models) > 1:
        yield f"{case.name}: the devices run different models ({', '.join(models)}); only latency is compared, not quality."


def _describe_overheads(scenario: Scenario, case: Case) -> Iterator[str]:
    """Yield the overhead of each device that has one, and the mean overheads of all paths."""
    path_s = 0.0
    for number, (device, part) in enumerate(scenario.devices.items()):
        if part.overhead is None:
            continue
        path_s += part.overhead.mean_s
        payer = "every request pays it, half before the decision and half after the answer"
        if number:
            payer = (
                "requests that are sent there or beyond pay it, as part of the transfer time that policies measure; the "
                f"overheads of a request that is executed there are {duration(path_s)} in the mean"
            )
        yield f"{case.name}, {device}: overhead {part.overhead.describe()}, as stated in the scenario; {payer}."


def _describe_device(case: Case, target: Target) -> Iterator[str]:
    """Yield the sentences about one device, without their full stops."""
    profile, decoder, decoding, conversion = target.profile, target.decoder, target.decoding, target.conversion
    outside = outside_share(profile, case.replayed)
    beyond = f"; {100 * outside:.2f} % of the pairs lie outside its range" if outside else ""
    yield f"profile {profile.name} of {profile.device.name} ({target.kind}){beyond}"
    if conversion is not None:
        how = "counted on the corpus" if conversion.counted else "as stated"
        units = f"{conversion.src_unit} and {conversion.tgt_unit}"
        yield (
            f"the profile counts by {units}, of which a token of the workload makes {conversion.src:.3g} and "
            f"{conversion.tgt:.3g} on average ({how}). The profile's costs are converted by these means; single "
            "sentences differ"
        )
    if decoder is not None:
        yield decoder.describe()
        if shares := describe_active_shares(decoder, together=decoding is not None):
            yield shares
    elif (calibrated := as_calibrated(profile)) is not None and not calibrated.exact:
        yield calibrated.short
    if decoding is not None:
        yield _describe_batching(decoding, decoder)
        if missing := _unmeasured_batch_costs(profile, decoding):
            yield f"not in profile {profile.name}, so counted as 0 s: {', '.join(missing)}"


def _describe_overload(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the policies without a mean because a queue grows as long as requests arrive."""
    for (workload, network), of_cell in by_cell(rows).items():
        overloaded = [f"{row['policy']} ({row['unstable']})" for row in of_cell if row.get("unstable")]
        if overloaded:
            yield (
                f"{workload} on {network}: no steady state under {', '.join(overloaded)}; totals, changes and latencies there "
                "are those of this run and depend on how long it lasts."
            )
