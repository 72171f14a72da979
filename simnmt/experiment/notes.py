"""What a reader needs to judge the numbers of a run: fits as rows, warnings, and notes from the template `notes.j2`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base.suggestions import format_list
from simnmt.devices.streaming_configuration import MEGABYTE
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.experiment.accounts import AVAILABILITY, LEFT_OUT_S, LEFT_OUT_TIMES, box_powers
from simnmt.experiment.cases import Case, RunPlan, UsedTarget, requests_by_workload
from simnmt.experiment.draws import Learnt
from simnmt.experiment.quality import describe_quality
from simnmt.experiment.targets import Target, outside_share
from simnmt.profile.execution_fit import PlaneFit
from simnmt.profile.profile_variant import as_calibrated
from simnmt.results.number_text import digits, duration, percent
from simnmt.results.places import ALL, CellName, by_cell, class_of, wholes
from simnmt.results.run import format_sources, shown_kind
from simnmt.results.summary import Row, warm_up_notes
from simnmt.scenario.source import describe_separate_runs
from simnmt.workload.configuration import SyntheticLengths

if TYPE_CHECKING:
    from jinja2 import Template

OFF_PACE = 3.0
"""Ratio of the clock's pace to the time of a request, up or down, from which a run is marked."""


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Plain text: whoever puts it on a page escapes it there.
    loader = FileSystemLoader(Path(__file__).resolve().parent)
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "duration": duration,
        "listed": format_list,
        "megabytes": lambda count: f"{digits(count / MEGABYTE)} MB",
        "digits": digits,
    }
    return environment.get_template("notes.j2")


def notes(plan: RunPlan, learnt: Mapping[str, Learnt], rows: Sequence[Row], engine_reasons: Mapping[str, str]) -> list[str]:
    """Return the sentences that a reader needs to judge the numbers.

    `learnt`: by workload, of replication 0; `rows`: of the summary; `engine_reasons`: by policy, why the reference ran it.
    """
    scenario, cases = plan.scenario, plan.cases.values()
    engines: dict[str, list[str]] = {}
    for policy, reason in engine_reasons.items():
        engines.setdefault(reason, []).append(policy)
    powers = [power for case in cases for power in box_powers(scenario, case).items()]
    links = [link for lines in plan.lines for link in (lines.link, *itertools.chain(*lines.hops.values()))]
    fit_of = {id(target): fit for case in cases for target, fit in zip(case.targets, learnt[case.name].plane_fits, strict=True)}
    facts: Row = {
        "scenario": scenario,
        "plan": plan,
        "learnt": learnt,
        "scope": list(describe_scope(plan)),
        "is_drawn": {name: isinstance(part.lengths, SyntheticLengths) for name, part in scenario.workloads.items()},
        "facts_of": lambda used: _target_facts(used, fit_of.get(id(used.target))),
        "up_percent": {
            name: digits(100.0 * sum(row[name + AVAILABILITY] for row in rows) / len(rows))
            for name, part in scenario.devices.items()
            if part.failures is not None and name + AVAILABILITY in rows[0]
        },
        "qualities": {name: describe_quality(plan, name) for name in plan.cases},
        "caches": {label: cache.describe() for label, cache in _caches(plan).items()},
        "messages": [*warnings(plan, rows), *_left_out_devices(rows)],
        # Sites that state no line have that of the scenario.
        "links": list({(link.rtt.name, link.rtt.source): link for link in links}.values()),
        "lines": list(warm_up_notes(rows)),
        "has_energy": scenario.has_costs or any(power for _, power in powers),
        "without_power": list(dict.fromkeys(name for name, power in powers if power is None)),
        "by_cell": {cell: _cell_facts(plan, cell, of_cell) for cell, of_cell in wholes(rows).items()},
        "requests": _requests_of(plan),
        "off_pace": f"{OFF_PACE:g}",
        "engines": engines,
        "oracle": next((name for name, policy in scenario.policies.items() if policy.knows_truth), None),
        "joins": any(case.batches or case.loads or case.slows for case in cases),
    }
    paragraphs = re.split(r"\n\s*\n", _template().render(facts))
    return [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]


def warnings(plan: RunPlan, rows: Sequence[Row]) -> list[str]:
    """Return the warnings about a run: its lengths, late streaming plans, requests without answers, varying rates, and doubts
    about profiles.

    `rows`: the rows of the summary.
    """
    of_lengths = [f"{case.name}: {warning}" for case in plan.cases.values() for warning in case.warnings]
    users: dict[tuple[str, str], dict[str, None]] = {}
    for used in plan.used_targets:
        for effect in used.target.doubts:
            users.setdefault((used.target.profile.name, effect), {})[used.label] = None
    doubts = [f"profile {name} ({format_list(by, ',')}): {effect}" for (name, effect), by in users.items()]
    traffic = [*_idle_caches(plan), *_filling_caches(rows), *_overdue_classes(plan, rows), *_partial_periods(plan)]
    return [*of_lengths, *_late_plans(plan), *_lost_requests(rows), *traffic, *doubts]


def _caches(plan: RunPlan) -> dict[str, CacheConfiguration]:
    """Return the caches of a scenario by their devices."""
    caches = ((used.label, used.scenario.devices[used.target.device].cache) for used in plan.used_targets)
    return {label: cache for label, cache in caches if cache is not None}


def _idle_caches(plan: RunPlan) -> Iterator[str]:
    if all(case.repeats is None for case in plan.cases.values()):
        for label in _caches(plan):
            yield f"{label}: its cache answers nothing, as each request is a new sentence (give repeats of a workload)"


def _filling_caches(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the cells in whose second half caches answered clearly more than in the first: they begin empty."""
    for cell, of_cell in wholes(rows).items():
        for row in of_cell:
            if row.get("late_hit_share") is None:
                continue
            share, late = row["hit_share"], row["late_hit_share"]
            rise, counted = 2.0 * (late - share), row["replications"] * (row["requests"] - row["warm_up_requests"])
            if rise > max(0.01, 4.0 * 2.0 * sqrt(share * (1.0 - share) / counted)):  # by chance, four standard errors are rare
                yield (
                    f"{cell}: caches begin empty and were still filling: they answered {percent(late - rise)} of the first "
                    f"half of the counted requests and {percent(late)} of the second, and answer more later (give more "
                    "requests, and warm_up_requests to leave out the first ones)"
                )
                break


def _requests_of(plan: RunPlan) -> dict[str, int]:
    return requests_by_workload(plan) if plan.is_mixed else dict.fromkeys(plan.cases, plan.scenario.requests)


def _partial_periods(plan: RunPlan) -> Iterator[str]:
    for name, count in _requests_of(plan).items():
        arrivals, total = plan.cases[name].arrivals, plan.scenario.requests
        whole = round((arrivals.period_s or 0.0) * (arrivals.mean_rate_rps or 0.0))
        if count < whole:
            yield (
                f"{name}: {count:,} requests are {percent(count / whole)} of those of a whole period of its rate "
                f"({duration(arrivals.period_s or 0.0)}), so the run may miss the peak (give {ceil(total * whole / count):,} "
                "requests, or the rate of the peak as a constant one)"
            )


MANY_OVERDUE = 0.1
"""Share of the requests of a class that wait longer than its `max_wait_s`, above which they are said to go before others."""


def _overdue_classes(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the classes whose `max_wait_s` lets many of their requests go before those of classes that are served first."""
    ranked = plan.scenario.ranked_classes
    for cell, of_cell in by_cell(rows).items():
        name = class_of(cell.workload)
        shares = [(row["policy"], row.get("overdue_share") or 0.0) for row in of_cell]
        many = [f"{policy} {digits(100 * share)} %" for policy, share in shares if share > MANY_OVERDUE]
        if name in ranked[1:] and many:
            wait_s, first = plan.scenario.classes[name].max_wait_s, format_list(ranked[: ranked.index(name)], "and")
            yield (
                f"{cell}: requests waited longer than max_wait_s ({wait_s:g} s) and then went before those of {first} "
                f"({format_list(many, 'and')}): give a longer classes.{name}.max_wait_s, or more servers"
            )


_UNANSWERED = {"lost_share": "lost", "refused_share": "refused", "gave_up_share": "given up by their clients"}


def _lost_requests(rows: Sequence[Row]) -> Iterator[str]:
    for cell, of_cell in by_cell(rows).items():
        for name, what in _UNANSWERED.items():
            losing = [f"{row['policy']} {digits(100 * row[name])} %" for row in of_cell if row.get(name)]
            if losing:
                yield (
                    f"{cell}: requests are {what} ({format_list(losing, 'and')}); latencies are over the answered "
                    "ones, so a policy that answers fewer may look faster"
                )


def _left_out_devices(rows: Sequence[Row]) -> Iterator[str]:
    for cell, of_cell in by_cell(rows).items():
        for device in (name.removesuffix(LEFT_OUT_S) for name in of_cell[0] if name.endswith(LEFT_OUT_S)):
            times = [
                f"{row['policy']} {digits(row[device + LEFT_OUT_TIMES])} times, {duration(row[device + LEFT_OUT_S])}"
                for row in of_cell
                if row[device + LEFT_OUT_S]
            ]
            if times:
                yield f"{cell}: {device} was left out after a failure (in a run: {'; '.join(times)})"


def describe_sources(plan: RunPlan) -> str:
    """Return a line on the kinds of the device profiles and of the round trips of a run."""
    profiles = [(shown_kind(used.target.kind, bool(used.target.doubts)), used.label) for used in plan.used_targets]
    return format_sources(profiles, [(network.link.rtt.kind, network.link.rtt.name) for network in plan.lines])


def describe_scope(plan: RunPlan) -> Iterator[str]:
    """Yield what a run of several workloads, and the intervals over replications of a recording, do not cover."""
    if separate := describe_separate_runs(plan.scenario):
        yield f"{separate[0].upper()}{separate[1:]}."
    if plan.is_mixed:
        yield from _describe_mix(plan)
    recorded = [name for name, part in plan.scenario.workloads.items() if part.arrivals.kind == "recorded"]
    if recorded and plan.scenario.replications > 1:
        yield (
            f"{format_list(recorded, 'and')}: all replications replay the same recording of arrivals, each from another moment "
            "on it. Intervals cover what else differs between replications, and not the traffic of another time."
        )


def _describe_mix(plan: RunPlan) -> Iterator[str]:
    """Yield which requests meet at the same devices, how they are divided, and by what each row is judged."""
    scenario, names = plan.scenario, list(plan.cases)
    first, *behind = scenario.devices
    counts = requests_by_workload(plan)
    if len(names) > 1:
        divided = format_list([f"{count:,} of {name}" for name, count in counts.items()], "and")
        yield (
            f"The requests of all workloads meet at the same devices, in one run of {scenario.requests:,} requests: {divided}, "
            "as their rates are, so that all end at about the same time (share_devices: false runs each by itself)."
        )
    if plan.sites:
        copies = {site.name: len(site.networks[next(iter(site.networks))]) for site in plan.sites}
        gateways = sum(copies[site.name] for site in plan.sites if site.has_device)
        yield (
            f"{sum(copies.values())} sites share {format_list(behind, 'and') or 'nothing'}; each has lines of its own, and "
            f"{'each' if gateways == sum(copies.values()) else f'{gateways} of them'} a {first}. Policies decide by the "
            "estimates of their site. A workload's requests are divided among its sites by their shares."
        )
    yield "Each policy is judged for all requests together, and for each site and workload by its row."


def _target_facts(used: UsedTarget, fit: PlaneFit | None) -> Row:
    scenario, case, target, _ = used
    overhead, calibrated = scenario.devices[target.device].overhead, as_calibrated(target.profile)
    decoder = None if target.decoder is None else target.decoder.short
    if decoder is None and calibrated is not None and not calibrated.exact:
        decoder = calibrated.short
    return {
        "overhead": None if overhead is None else overhead.describe(),
        "outside": 100.0 * outside_share(target.profile, case.table),
        "decoder": decoder,
        "unmeasured": _unmeasured_batch_costs(target),
        "collinear": fit is not None and fit.collinear,
    }


def _unmeasured_batch_costs(target: Target) -> list[str]:
    """Return the costs of batching, other than steps and encoder, for which the profile has no figure."""
    profile, decoding = target.profile, target.decoding
    if decoding is None:
        return []
    known = profile.overheads_s
    gap, gap_per_sentence = "step_gap_s" in known, "step_gap_s_per_sentence" in known
    parts = {
        "the gap between two steps": gap or gap_per_sentence,
        "what each sentence adds to the gap between two steps": gap_per_sentence or not gap,
        "joining a batch (refilling)": profile.knows_refills or decoding.free_refills,
        "leaving it": "leave_s" in known,
        "what a longer source adds to a step": profile.step is not None and profile.step.s_per_row_src_token is not None,
    }
    return [part for part, is_known in parts.items() if not is_known]


def _cell_facts(plan: RunPlan, cell: CellName, of_cell: Sequence[Row]) -> Row:
    """Return the pace of the RTT clock where no policy moves it, the policies that are off it, and the overloaded ones."""
    case = plan.cases.get(cell.workload) or next(iter(plan.cases.values()))
    pace_s = of_cell[0]["rtt_pace_s"]
    ratios = {row["policy"]: pace_s * row["throughput_rps"] for row in of_cell if pace_s and row["throughput_rps"] > 0.0}
    return {
        "pace_s": pace_s,
        "clock": plan.scenario.clock_of(case.name, cell.network),
        "off": [policy for policy, ratio in ratios.items() if not 1.0 / OFF_PACE <= ratio <= OFF_PACE],
        "overloaded": [f"{row['policy']} ({row['unstable']})" for row in of_cell if row.get("unstable")],
    }


def _late_plans(plan: RunPlan) -> Iterator[str]:
    """Yield the streamed devices whose first turn is late even with a filled preload buffer."""
    for workload, target in ((case.name, target) for case in plan.cases.values() for target in case.targets):
        if target.streaming is None:
            continue
        planned = target.streaming.planned
        plans = [(planned.deadline_s, planned.states), *((change.deadline_s, change.states) for change in planned.changes)]
        for deadline_s, (_, turn, *_) in plans:
            if turn.latency_s > deadline_s * (1.0 + 1e-9):
                yield (
                    f"{workload}, {target.device}: no plan of the streamed model meets the deadline of {duration(deadline_s)}: "
                    f"{turn.name} takes {duration(turn.latency_s)} (set a longer deadline_ms or more preload_mb)"
                )


def fits(case: Case, learnt: Learnt) -> Iterator[Row]:
    """Yield one row per fit of one replication: the length regression, then each device's plane, with their errors."""
    lengths = learnt.lengths
    keys = ("len_slope", "len_offset", "pairs_r2", "pairs_mse", "means_r2", "means_mse")
    yield {
        "site": ALL,
        "workload": case.name,
        "of": "target length over source length",
        "kind": "fitted on the corpus's fit pairs",
        "samples": lengths.pairs,
        **{key: getattr(lengths, key) for key in keys},
    }
    for target, plane, fit in zip(case.targets, learnt.planes, learnt.plane_fits, strict=True):
        row: dict[str, Any] = {
            "site": ALL,
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
