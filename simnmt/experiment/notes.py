"""What the numbers of a run rest on, for a reader: fits as rows, warnings about the input, and notes as sentences.

The notes cover lengths, devices, links, clocks, batches, streamed models, overload, and the spread over replications.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import isinf
from typing import Any

import numpy as np

from simnmt.experiment.draws import Learnt, describe_active_shares
from simnmt.experiment.inputs import Case, Decoding, RunPlan, Target, outside_share
from simnmt.experiment.routes import describe_clocks
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries
from simnmt.profile.blocks import Overhead, Overheads
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_variant import DecoderChoice, as_calibrated
from simnmt.results.device_accounts import PlannedDevice, PlannedState
from simnmt.results.number_text import digits, duration
from simnmt.results.precision import spread_notes
from simnmt.results.summary import Row
from simnmt.scenario.configuration import MEGABYTE, Scenario, StreamingConfiguration
from simnmt.workload.configuration import SyntheticLengths


def describe_batching(decoding: Decoding, decoder: DecoderChoice | None = None) -> str:
    """How a device batches, and on what its times rest; `decoder`: the variant to which its profile was moved."""
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
        wait = f", for which whoever waits first waits {long}"
    known = "composed" if decoder is not None and decoder.how == "composed" else "measured"
    beams = f"step costs of beam {cost.beam} {known} up to batches of {cost.most_batch}"
    beyond = ", extrapolated beyond" if batching.size > cost.most_batch else ""
    return (
        f"decodes up to {batching.size} sentences together, {order}; {refilled}{wait}. What that takes follows from lengths "
        f"({beams}{beyond}), without the residual of single executions; what policies learn of the device is its time alone"
    )


def unmeasured_batch_costs(profile: DeviceProfile, decoding: Decoding) -> list[str]:
    """Return the costs of batching, beside steps and encoder, that the profile has no figure for."""
    overheads = profile.overheads or Overheads()

    def known(overhead: Overhead | None) -> bool:
        return overhead is not None and overhead.value is not None

    parts = {
        "the gap between two steps": known(overheads.step_gap_s) or known(overheads.step_gap_s_per_sentence),
        "what each sentence adds to the gap between two steps": known(overheads.step_gap_s_per_sentence)
        or not known(overheads.step_gap_s),
        "joining a batch (refilling)": profile.knows_refills or decoding.free_refills,
        "leaving it": known(overheads.leave_s),
        "what a longer source adds to a step": profile.step is not None and profile.step.s_per_row_src_token is not None,
    }
    return [part for part, is_known in parts.items() if not is_known]


def describe_endless_waits(plan: RunPlan) -> Iterator[str]:
    """Where what foresees batches cannot tell when one begins, as only who comes later decides it."""
    scenario = plan.scenario
    foreseeing = [name for name, policy in scenario.policies.items() if policy.knows_truth]
    foreseeing += ["the misroutes (foresee_misroutes)"] if scenario.foresee_misroutes else []
    foreseeing += ["the gap analysis"] if scenario.gap_analysis else []
    for case in plan.cases.values():
        endless = [
            target.device
            for target in case.targets
            if target.decoding is not None and isinf(target.decoding.batching.longest_wait_s)
        ]
        if case.batches and endless and foreseeing:
            yield (
                f"{case.name}, {', '.join(endless)}: a batch may wait for company for ever (longest_wait_ms: null), and when "
                f"it begins depends on who is still to come. That is not foreseen by {', '.join(foreseeing)}, which take it to "
                "begin at once: what they hold to be fastest need not be, and is no bound. A finite wait is foreseen."
            )


def describe_no_batching(scenario: Scenario) -> Iterator[str]:
    """What is said of batches where there are none: taking `batching` away must not make a scenario wrong."""
    if any(device.batching is not None for device in scenario.devices.values()):
        return
    hearing = [
        name
        for name, policy in scenario.policies.items()
        if policy.estimation.hears_batches and not policy.estimation.sees_backlog
    ]
    if hearing:
        yield f"No device batches, so nothing is reported of a batch to {', '.join(hearing)}."
    if scenario.foresee_misroutes and not any(device.sti is not None for device in scenario.devices.values()):
        yield "No device batches or streams its model, so foresee_misroutes changes nothing."


def describe_streaming(scenario: Scenario, device: str, planned: PlannedDevice) -> Iterator[str]:
    """The sentences about one streamed device, without their full stops."""
    settings = scenario.devices[device].sti
    assert settings is not None
    yield describe_submodel(planned)
    yield describe_memory(planned, settings)
    yield describe_cold_start(planned)
    yield f"predicted for such a request at an idle box, {planned.kind} profile: {describe_predictions(planned)}"
    yield from describe_changes(planned)
    yield from describe_unreachable_goals(planned)
    yield (
        "what a translation loses by fewer layers and slices and by the bits of its weights was not measured: latencies are "
        "compared, not quality. Policies learn what the planned submodel takes in memory; what reading adds they know by "
        "plan_state: known alone"
    )


def describe_submodel(planned: PlannedDevice) -> str:
    """What of the model is executed, and for what it was planned."""
    first = planned.states[0]
    layers = f"{first.layers} of {planned.all_layers}"
    if planned.all_decoder_layers:
        layers += f" encoder and {first.decoder_layers} of {planned.all_decoder_layers} decoder"
    tokens = f"{planned.src_len} source" + (f" and {planned.tgt_len} target" if planned.tgt_len else "") + " tokens"
    return (
        f"streams {planned.model} from its disk, layer by layer: {layers} layers with "
        f"{first.slices} of {planned.all_slices} slices each, planned once for all boxes ({planned.plans} "
        f"plan{'s' * (planned.plans != 1)}) for {tokens} within {duration(planned.deadline_s)}"
    )


def describe_memory(planned: PlannedDevice, settings: StreamingConfiguration) -> str:
    """What a box keeps of its model, and for how long."""
    within = f", {megabytes(planned.cache_bytes)} from turn to turn" if planned.cache_bytes > planned.preload_bytes else ""
    kept = "is kept" if settings.keeps_preload else "is given back"
    kept = "and the enlarged cache are kept" if settings.keeps_cache else kept
    reclaimed = "never" if settings.reclaimed_after_s is None else f"after {duration(settings.reclaimed_after_s)} idle"
    return (
        f"a preload buffer of {megabytes(planned.preload_bytes)}{within}, and beside it {megabytes(planned.working_bytes)} in "
        f"which a layer is computed; requests within {duration(settings.engagement_gap_s)} of the last answer are turns of one "
        f"engagement, after which the buffer {kept}; the system reclaims all of it {reclaimed}"
    )


def describe_changes(planned: PlannedDevice) -> Iterator[str]:
    """Yield what each change of deadline or buffer brings, and how boxes take it."""
    for change in planned.changes:
        first = change.states[0]
        yield (
            f"from {duration(change.at_s)} on planned anew for {duration(change.deadline_s)} and a preload buffer of "
            f"{megabytes(change.preload_bytes)}: {first.layers} layers with {first.slices} slices each; "
            f"{'; '.join(_describe_state(state) for state in change.states)}"
        )
    if planned.changes:
        yield (
            f"planned {planned.plannings} times in all. A request is executed by the plan that holds when it reaches its box; "
            "a change ends the engagement, and a box that holds its buffer fills it for the new plan from its disk. Policies "
            "keep to what the first plan takes"
        )


def describe_cold_start(planned: PlannedDevice) -> str:
    """What is read where nothing of the model is in memory."""
    if planned.cold_read_bytes is None:
        return (
            "what a cold start reads beside shards (embeddings, norms, head) is in no profile and counted as nothing "
            "(cold_read_mb says it)"
        )
    if not planned.cold_read_bytes:
        return "a cold start reads shards alone: what is in none of them (embeddings, norms, head) stays in memory"
    return (
        f"a cold start reads {megabytes(planned.cold_read_bytes)} that are in no shard (embeddings, norms, head) ahead of the "
        "first layer's shards, and computes nothing before"
    )


def describe_predictions(planned: PlannedDevice) -> str:
    """Latency, stall and bits by state."""
    return "; ".join(_describe_state(state) for state in planned.states)


def _describe_state(state: PlannedState) -> str:
    stall = f" ({duration(state.stall_s)} of it stalled)" if state.stall_s > 1e-9 else ""
    read = f"reads {megabytes(state.read_bytes)}" if state.read_bytes else "reads nothing"
    return f"{state.name} {duration(state.latency_s)}{stall}, {read}, shards of {bits(state)}"


def bits(state: PlannedState) -> str:
    """Describe how many bits the shards of a state have.

    >>> bits(PlannedState("cold", 1, 0, 3, ((2, 2), (6, 1)), 0, 0, 0.0, 0.0, (), ()))
    '2 (2 of 3) and 6 bits'
    """
    shards = sum(count for _, count in state.bits)
    widths = [f"{width} ({count} of {shards})" for width, count in state.bits]
    if len(widths) > 1:
        widths[-1] = str(state.bits[-1][0])
        return f"{', '.join(widths[:-1])} and {widths[-1]} bits"
    return f"{state.bits[0][0]} bits"


def describe_unreachable_goals(planned: PlannedDevice) -> Iterator[str]:
    """What no plan reaches."""
    first, turn = planned.states[:2]
    late = [state.name for state in planned.states if state.latency_s > planned.deadline_s * (1.0 + 1e-9)]
    if late:
        smallest = " even by the smallest submodel, 1 layer of 1 slice," if (first.layers, first.slices) == (1, 1) else ""
        yield f"the deadline of {duration(planned.deadline_s)} is not met{smallest} in these states: {', '.join(late)}"
    if short := [state.name for state in planned.states if state.short_of_io]:
        which = ", ".join(short)
        yield f"the disk is too slow to read 2 bits of every weight in time, so the processor waits for it, in: {which}"
    if planned.preload_bytes > turn.held_bytes == 0:
        preload = megabytes(planned.preload_bytes)
        yield f"no shard fits into the preload buffer of {preload}, so the first turn finds nothing in it"


def megabytes(count: int) -> str:
    """10^6 bytes.

    >>> megabytes(1_770_000)
    '1.77 MB'
    """
    return f"{digits(count / MEGABYTE)} MB"


def describe_no_streaming(scenario: Scenario) -> Iterator[str]:
    """What is said of plans where there are none: taking `sti` away must not make a scenario wrong."""
    if any(device.sti is not None for device in scenario.devices.values()):
        return
    knowing = [name for name, policy in scenario.policies.items() if policy.estimation.plan_state != "ignored"]
    if knowing:
        yield f"No device streams its model, so there is no state of a plan to be known by {', '.join(knowing)}."


ILL_CONDITIONED = 30.0
"""Condition number from which single coefficients mean little, though their sum predicts (Belsley's rule of thumb)."""


def fits(case: Case, learnt: Learnt) -> Iterator[Row]:
    """What the policies of one replication believe about a workload, and how good it is."""
    lengths = learnt.lengths
    yield {
        "workload": case.name,
        "of": "target length over source length",
        "kind": "fitted on the corpus's fit pairs",
        "samples": lengths.pairs,
        "len_slope": lengths.len_slope,
        "len_offset": lengths.len_offset,
        "pairs_r2": lengths.pairs_r2,
        "pairs_mse": lengths.pairs_mse,
        "means_r2": lengths.means_r2,
        "means_mse": lengths.means_mse,
    }
    for target, plane, fit in zip(case.targets, learnt.planes, learnt.plane_fits, strict=True):
        profile = target.profile
        row: dict[str, Any] = {
            "workload": case.name,
            "of": f"execution time on the {target.device}",
            "profile": profile.name,
            "box": profile.device.name,
            "kind": f"{target.kind} profile" if fit is None else f"simulated calibration of the {target.kind} profile",
            "samples": 0 if fit is None else fit.inferences,
            "s_per_src_token": plane.s_per_src_token,
            "s_per_tgt_token": plane.s_per_tgt_token,
            "s_fixed": plane.s_fixed,
        }
        if target.decoder is not None:
            row["decoder"] = target.decoder.as_json()
        if fit is not None:
            row |= {
                "r2": fit.r2,
                "mse_ms2": fit.mse_ms2,
                "condition_number": None if fit.collinear else fit.condition_number,
                "collinear": fit.collinear,
            }
        yield row


def warnings(plan: RunPlan) -> list[str]:
    """Return what looks wrong with a run's input: lengths, and every doubt of a profile once with the devices that use it."""
    return [f"{case.name}: {warning}" for case in plan.cases.values() for warning in case.warnings] + _describe_doubts(plan)


def _describe_doubts(plan: RunPlan) -> list[str]:
    """Return every doubt of a profile once, with all devices that use it."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for case in plan.cases.values():
        for target in case.targets:
            for doubt in target.doubts:
                users.setdefault((target.profile.name, doubt.message), {})[target.device] = None
    return [f"profile {name} ({', '.join(by)}): {message}" for (name, message), by in users.items()]


def notes(plan: RunPlan, learnt: dict[str, Learnt], rows: Sequence[Row]) -> list[str]:
    """What a reader must know to judge the numbers; `learnt`: by workload, replication 0's; `rows`: the summary's."""
    lines = [plan.scenario.description] if plan.scenario.description else []
    for case in plan.cases.values():
        lines += _describe_lengths(plan, case, learnt[case.name])
        lines.append(f"{case.name}: {case.arrivals.account}.")
        lines += _describe_devices(case, learnt[case.name])
        lines += _describe_streamed_devices(plan, case)
    lines += [f"{message}." for message in _describe_doubts(plan)]
    for network in plan.networks.values():
        lines += [_describe_link(link) for link in dict.fromkeys((network.link, *itertools.chain(*network.hops.values())))]
    lines += describe_clocks(plan.scenario, rows)
    lines += describe_no_batching(plan.scenario)
    lines += describe_no_streaming(plan.scenario)
    lines += describe_endless_waits(plan)
    lines += _describe_overload(rows)
    lines += spread_notes(rows, plan.scenario.objective)
    if plan.scenario.replications == 1:
        lines.append("One replication: no intervals, no word on whether a difference is chance.")
    return lines


def _describe_lengths(plan: RunPlan, case: Case, learnt: Learnt) -> Iterator[str]:
    for warning in case.warnings:
        yield f"{case.name}: {warning}."
    table, fit = case.table, learnt.fit_pairs.pairs
    counted = {"none": "", "source": ", sources with their end", "target": ", targets with their end", "both": ", ends counted"}
    ends = counted[table.end_of_sentence]
    synthetic = isinstance(plan.scenario.workloads[case.name].lengths, SyntheticLengths)
    reference = "The target length is the reference translation's, standing in for a model's own output."
    yield (
        f"{case.name}: {table.pairs:,} length pairs of {table.source}, counted by {table.src_unit} and {table.tgt_unit}{ends}; "
        f"in each replication {fit:,} of them are set apart for fitting and the {plan.scenario.requests:,} requests drawn with "
        f"replacement from the other {table.pairs - fit:,}{_describe_outliers(case, learnt)}. {_describe_dropped_pairs(case)}"
        f"{'No text lies behind them: both lengths are drawn.' if synthetic else reference}"
    )
    if learnt.lengths.remark:
        yield f"{case.name}: {learnt.lengths.remark}."
    if table.tgt_unit == "mixed" and learnt.lengths.len_slope > 1.0:
        yield (
            f"{case.name}: counted by Han character, a target is longer than its source ({learnt.lengths.len_slope:.2f} tokens "
            "a source token); the C-NMT paper counts subwords, of which Chinese needs fewer than English."
        )


def _describe_dropped_pairs(case: Case) -> str:
    """Return what the filter dropped, and from what; an empty text where it dropped nothing, or where that is unknown."""
    filtered = case.table.filtered
    if not filtered or " 0 dropped" in filtered:
        return ""
    fitted = "The policies fit on the kept pairs alone"
    scope = "Neither what the policies fit on nor the requests hold dropped pairs" if case.outliers is None else fitted
    return f"Filter {filtered}. {scope}. "


def _describe_outliers(case: Case, learnt: Learnt) -> str:
    """Return from how many of the pairs that the filter drops requests are drawn all the same; empty for none."""
    if case.outliers is None:
        return ""
    outliers = learnt.evaluated_pairs.pairs - (case.table.pairs - learnt.fit_pairs.pairs)
    return f" and from {outliers:,} of the {case.outliers.pairs:,} dropped pairs with text on both sides"


def _describe_link(link: Link) -> str:
    lost = _describe_lost_samples(link.rtt.lost)
    note = f"{link.rtt.name}: {link.rtt.kind} RTT series, mean {link.rtt.mean_s * 1e3:.1f} ms{lost}."
    for direction, bandwidth in (("uplink", link.uplink_bps), ("downlink", link.downlink_bps)):
        if isinstance(bandwidth, BandwidthSeries):
            median_mbps = float(np.median(bandwidth.rate_bps)) / 1e6
            series = f"{bandwidth.kind} series of {bandwidth.source}, median {median_mbps:.3g} Mbit/s"
            note += f" Its {direction}: {series}{_describe_lost_samples(bandwidth.lost)}."
    return note


def _describe_lost_samples(samples: int) -> str:
    return f"; lost samples: {samples}, held at the value before" if samples else ""


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
        yield describe_batching(decoding, decoder)
        if missing := unmeasured_batch_costs(profile, decoding):
            yield f"not in profile {profile.name}, so counted as 0 s: {', '.join(missing)}"


def _describe_streamed_devices(plan: RunPlan, case: Case) -> Iterator[str]:
    for target in case.targets:
        if target.streaming is not None:
            for note in describe_streaming(plan.scenario, target.device, target.streaming.planned):
                yield f"{case.name}, {target.device}: {note}."


def _describe_overload(rows: Sequence[Row]) -> Iterator[str]:
    """Where a queue grows without bound there is no mean to be known, only what happened until the run ended."""
    for workload, network in dict.fromkeys((row["workload"], row["network"]) for row in rows):
        overloaded = [
            f"{row['policy']} ({row['unstable']})"
            for row in rows
            if (row["workload"], row["network"]) == (workload, network) and row.get("unstable")
        ]
        if overloaded:
            yield (
                f"{workload} on {network}: no steady state under {', '.join(overloaded)}; totals, changes and latencies there "
                "are those of this run and depend on how long it lasts."
            )
