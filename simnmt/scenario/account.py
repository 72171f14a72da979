"""The account of a run: what its numbers rest on, as rows of fits and as notes for a reader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simnmt.network.bandwidth_series import BandwidthSeries
from simnmt.network.link import Link
from simnmt.results.precision import spread_notes
from simnmt.results.summary import Row
from simnmt.scenario.active_shares import of_shares
from simnmt.scenario.batch_notes import batches, not_told, of_endless_waits, of_nothing_batched
from simnmt.scenario.build import Case, Plan, outside_share
from simnmt.scenario.learning import Learnt
from simnmt.scenario.rtt_clock import clock_notes
from simnmt.scenario.streaming_notes import of_nothing_streamed, of_streaming
from simnmt.workload.configuration import SyntheticLengths

ILL_CONDITIONED = 30.0
"""Condition number from which single coefficients mean little, though their sum predicts (Belsley's rule of thumb)."""


def fits(case: Case, devices: Sequence[str], learnt: Learnt) -> Iterator[Row]:
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
    targets = zip(devices, case.profiles, case.kinds, case.decoders, learnt.planes, learnt.plane_fits, strict=True)
    for device, profile, kind, decoder, plane, fit in targets:
        row: dict[str, Any] = {
            "workload": case.name,
            "of": f"execution time on the {device}",
            "profile": profile.name,
            "box": profile.device.name,
            "kind": f"{kind} profile" if fit is None else f"simulated calibration of the {kind} profile",
            "samples": 0 if fit is None else fit.inferences,
            "s_per_src_token": plane.s_per_src_token,
            "s_per_tgt_token": plane.s_per_tgt_token,
            "s_fixed": plane.s_fixed,
        }
        if decoder is not None:
            row["decoder"] = decoder.as_json()
        if fit is not None:
            row |= {
                "r2": fit.r2,
                "mse_ms2": fit.mse_ms2,
                "condition_number": None if fit.collinear else fit.condition_number,
                "collinear": fit.collinear,
            }
        yield row


def warnings(plan: Plan) -> list[str]:
    """Return what looks wrong with a run's input: lengths, and every doubt of a profile once with the devices that use it."""
    return [f"{case.name}: {warning}" for case in plan.cases.values() for warning in case.warnings] + _of_doubts(plan)


def _of_doubts(plan: Plan) -> list[str]:
    """Return every doubt of a profile once, with all devices that use it."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for case in plan.cases.values():
        for device, profile, doubts in zip(plan.scenario.devices, case.profiles, case.doubts, strict=True):
            for doubt in doubts:
                users.setdefault((profile.name, doubt.message), {})[device] = None
    return [f"profile {name} ({', '.join(by)}): {message}" for (name, message), by in users.items()]


def notes(plan: Plan, learnt: dict[str, Learnt], rows: Sequence[Row]) -> list[str]:
    """What a reader must know to judge the numbers; `learnt`: by workload, replication 0's; `rows`: the summary's."""
    lines = [plan.scenario.description] if plan.scenario.description else []
    for case in plan.cases.values():
        lines += _of_lengths(plan, case, learnt[case.name])
        lines.append(f"{case.name}: {case.arrivals.account}.")
        lines += _of_devices(case, list(plan.scenario.devices), learnt[case.name])
        lines += _of_streaming(plan, case)
    lines += [f"{message}." for message in _of_doubts(plan)]
    for network in plan.networks.values():
        lines += [_of_link(link) for link in dict.fromkeys((network.link, *itertools.chain(*network.hops.values())))]
    lines += clock_notes(plan.scenario, rows)
    lines += of_nothing_batched(plan.scenario)
    lines += of_nothing_streamed(plan.scenario)
    lines += of_endless_waits(plan)
    lines += _of_overload(rows)
    lines += spread_notes(rows, plan.scenario.objective)
    if plan.scenario.replications == 1:
        lines.append("One replication: no intervals, no word on whether a difference is chance.")
    return lines


def _of_lengths(plan: Plan, case: Case, learnt: Learnt) -> Iterator[str]:
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
        f"replacement from the other {table.pairs - fit:,}{_replayed_outliers(case, learnt)}. {_dropped(case)}"
        f"{'No text lies behind them: both lengths are drawn.' if synthetic else reference}"
    )
    if learnt.lengths.remark:
        yield f"{case.name}: {learnt.lengths.remark}."
    if table.tgt_unit == "mixed" and learnt.lengths.len_slope > 1.0:
        yield (
            f"{case.name}: counted by Han character, a target is longer than its source ({learnt.lengths.len_slope:.2f} tokens "
            "a source token); the C-NMT paper counts subwords, of which Chinese needs fewer than English."
        )


def _dropped(case: Case) -> str:
    """Return what the filter dropped, and from what; an empty text where it dropped nothing, or where that is unknown."""
    filtered = case.table.filtered
    if not filtered or " 0 dropped" in filtered:
        return ""
    fitted = "The policies fit on the kept pairs alone"
    scope = "Neither what the policies fit on nor the requests hold dropped pairs" if case.outliers is None else fitted
    return f"Filter {filtered}. {scope}. "


def _replayed_outliers(case: Case, learnt: Learnt) -> str:
    """Return from how many of the pairs that the filter drops requests are drawn all the same; empty for none."""
    if case.outliers is None:
        return ""
    outliers = learnt.evaluated_pairs.pairs - (case.table.pairs - learnt.fit_pairs.pairs)
    return f" and from {outliers:,} of the {case.outliers.pairs:,} dropped pairs with text on both sides"


def _of_link(link: Link) -> str:
    note = f"{link.rtt.name}: {link.rtt.kind} RTT series, mean {link.rtt.mean_s * 1e3:.1f} ms{_lost(link.rtt.lost)}."
    for direction, bandwidth in (("uplink", link.uplink_bps), ("downlink", link.downlink_bps)):
        if isinstance(bandwidth, BandwidthSeries):
            median_mbps = float(np.median(bandwidth.rate_bps)) / 1e6
            series = f"{bandwidth.kind} series of {bandwidth.source}, median {median_mbps:.3g} Mbit/s"
            note += f" Its {direction}: {series}{_lost(bandwidth.lost)}."
    return note


def _lost(samples: int) -> str:
    return f"; lost samples: {samples}, held at the value before" if samples else ""


def _of_devices(case: Case, devices: Sequence[str], learnt: Learnt) -> Iterator[str]:
    targets = zip(devices, case.profiles, case.kinds, case.decoders, case.decoding, learnt.plane_fits, strict=True)
    for number, (device, profile, kind, decoder, decoding, fit) in enumerate(targets):
        outside = outside_share(profile, case.replayed)
        beyond = f"; {100 * outside:.2f} % of the pairs lie outside its range" if outside else ""
        yield f"{case.name}, {device}: profile {profile.name} of {profile.device.name} ({kind}){beyond}."
        if number < len(case.conversions) and (conversion := case.conversions[number]) is not None:
            how = "counted on the corpus" if conversion.counted else "as stated"
            units, factors = (
                f"{conversion.src_unit} and {conversion.tgt_unit}",
                f"{conversion.src:.3g} and {conversion.tgt:.3g}",
            )
            yield (
                f"{case.name}, {device}: the profile counts by {units}, of which a token of the workload makes {factors} on "
                f"average ({how}). The profile's costs are converted by these means; single sentences differ."
            )
        if decoder is not None:
            yield f"{case.name}, {device}: {decoder.words()}."
            if shares := of_shares(decoder, together=decoding is not None):
                yield f"{case.name}, {device}: {shares}."
        elif (calibrated := profile.as_calibrated) is not None and not calibrated.exact:
            yield f"{case.name}, {device}: {calibrated.short}."
        if decoding is not None:
            yield f"{case.name}, {device}: {batches(decoding, decoder)}."
            if missing := not_told(profile, decoding):
                yield f"{case.name}, {device}: not in profile {profile.name}, so counted as 0 s: {', '.join(missing)}."
        if fit is not None and fit.collinear:
            yield (
                f"{case.name}, {device}: target lengths follow from source lengths, so these do not determine the plane's "
                "coefficients; the smallest that fit were taken."
            )
        elif fit is not None and fit.condition_number > ILL_CONDITIONED:
            yield (
                f"{case.name}, {device}: source and target lengths move together (condition number "
                f"{fit.condition_number:.0f}), so the fitted plane's single coefficients mean little; its predictions hold."
            )
    models = list(dict.fromkeys(profile.model.name for profile in case.profiles))
    if len(models) > 1:
        yield f"{case.name}: the devices run different models ({', '.join(models)}); only latency is compared, not quality."


def _of_streaming(plan: Plan, case: Case) -> Iterator[str]:
    for device, streamed in zip(plan.scenario.devices, case.streamed, strict=False):
        if streamed is not None:
            for note in of_streaming(plan.scenario, device, streamed.planned):
                yield f"{case.name}, {device}: {note}."


def _of_overload(rows: Sequence[Row]) -> Iterator[str]:
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
