"""Top-up batching reproduced (`simnmt reproduce topup`): occupancies, speeds, loads within a p95, verdicts and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import floor, log10
from typing import TypeVar

from simnmt.papers.fni import offline, online, published
from simnmt.papers.fni.cases import LEAST_BATCHES, case_name
from simnmt.papers.fni.devices import Decoder, decoders, doubtful_profiles, shipped_profiles
from simnmt.papers.fni.online import Curve, LoadLimit, load_limits
from simnmt.papers.fni.published import OCCUPANCIES, SETS
from simnmt.papers.fni.topup_claims import moment_claim, occupancy_claims, online_claims, speed_claims
from simnmt.papers.kit.claim import ClaimRecord
from simnmt.papers.kit.page import ChartSection, Row, grouped, line_series
from simnmt.papers.kit.report import PaperReport
from simnmt.papers.kit.table import Table, record
from simnmt.profile.device_profile import DeviceProfile
from simnmt.report.charts import Axis, Chart, Mark
from simnmt.report.table import Column, TableCell
from simnmt.report.typography import typeset_interval

T = TypeVar("T")
_CASE = ("device", "beam", "test_set")
MEASURES = {
    "full_share": ("full, %", 100.0, 1),
    "below_8_share": ("below 8, %", 100.0, 1),
    "mean_active": ("mean active", 1.0, 1),
    "steps": ("steps", 1.0, 0),
}
"""Measures of an occupancy: name with unit, scale and decimals."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's claims on batching, and our results."""

    occupancies: dict[tuple[str, str], offline.StepOccupancy]
    """By set and strategy."""
    moments: list[offline.Moments]
    decoders: list[Decoder]
    speeds: dict[tuple[str, int, str, str], offline.Speed]
    """By device, beam, set and strategy."""
    refill_limits: list[offline.RefillLimit]
    curves: list[Curve]
    load_limits: list[LoadLimit]
    claims: list[ClaimRecord]
    sentences: int | None = None
    """Most sentences timed per set; None: the paper's."""

    def report(self) -> PaperReport:
        """Return the reproduction for JSON, terminal and page."""
        speeds = self._compared_speeds()
        tables = _tables(self, speeds)
        return PaperReport(
            heading="Top-up batching, reproduced",
            paper=published.TOPUP_REFERENCE,
            claims=self.claims,
            tables=tables,
            charts=[*_speed_charts(speeds), *_occupancy_charts(self)],
            setting=published.SETTING,
            setting_title="The paper's setting (FNI-13)",
            slips=published.TOPUP_SLIPS,
            notes=_notes(self),
            summary=_summary(speeds),
            main_claims=("FNI-16 (a)", "FNI-16 (b)", "FNI-16 (f)", "FNI-10", "FNI-12 (d)", "FNI-09 (online)"),
            main_charts=("figures-6-7", "figure-2"),
            matrix_note="Signs and orders can be compared; sizes depend on the device. Figures that are extrapolated, such as "
            "those of a beam that was not measured, or lack measured costs of a refill decide nothing.",
            remarks=_smaller_batches(self.decoders),
            more={"devices": tables[-1].records(), "doubts": doubtful_profiles(self.decoders)},
        )

    def _compared_speeds(self) -> list[offline.ComparedSpeed]:
        by_key = {(decoder.device, decoder.beam): decoder for decoder in self.decoders}
        return [
            offline.ComparedSpeed(by_key[device, beam], timed, offline.gain(timed, self.speeds[device, beam, test_set, "mini"]))
            for (device, beam, test_set, _), timed in self.speeds.items()
        ]


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    p95_s: float | None = None,
    requests: int | None = None,
    jobs: int = 1,
    progress: offline.Progress | None = None,
) -> Reproduction:
    """Simulate the paper's batches and time them on `profiles`, by default all shipped ones.

    Args:
        profiles: those without batched step costs are skipped.
        p95_s: the p95 latency that online runs must hold; by default chosen per device.
        requests: most sentences timed per set and per online run; fewer than `LEAST_BATCHES` batches decide no verdict.
            Occupancies always cover the paper's whole sets.
        jobs: processes.
        progress: called after each task.

    Raises:
        InputError: too few requests.
    """
    offline.check_requests(requests)
    known = decoders(shipped_profiles() if profiles is None else profiles)
    least_beam = {decoder.device: min(other.beam for other in known if other.device == decoder.device) for decoder in known}
    p95s = None if p95_s is None else (p95_s,)
    occupied = [partial(_occupancies, key) for key in SETS]
    timed = [partial(_speeds, decoder, key, requests) for decoder in known for key in SETS]
    arriving = [
        partial(load_limits, decoder, key, p95s, online.SEEDS, requests)
        for decoder in known
        if decoder.beam == least_beam[decoder.device]
        for key in SETS
    ]
    of_sets, of_speeds, of_loads = offline.run_groups([occupied, timed, arriving], jobs, progress)
    moments = [set_moments for set_moments, _ in of_sets]
    occupancies = {(item.test_set, item.strategy): item for _, by_strategy in of_sets for item in by_strategy}
    speeds = {(item.device, item.beam, item.test_set, item.strategy): item for timings, _ in of_speeds for item in timings}
    limits = [limit for _, task_limits in of_speeds for limit in task_limits]
    loads = [limit for _, task_limits in of_loads for limit in task_limits]
    claims = [
        moment_claim(moments),
        *occupancy_claims(occupancies),
        *speed_claims(known, speeds, limits, requests),
        *online_claims(known, loads, requests),
    ]
    curves = [curve for task_curves, _ in of_loads for curve in task_curves]
    return Reproduction(occupancies, moments, known, speeds, limits, curves, loads, claims, requests)


def _occupancies(test_set: str) -> tuple[offline.Moments, list[offline.StepOccupancy]]:
    return offline.drawn_moments(test_set, offline.SEEDS), [
        offline.step_occupancy(test_set, strategy.key, offline.SEEDS) for strategy in offline.OFFLINE
    ]


def _speeds(decoder: Decoder, test_set: str, sentences: int | None) -> tuple[list[offline.Speed], list[offline.RefillLimit]]:
    by_strategy = {
        strategy.key: offline.speed(decoder, test_set, strategy.key, offline.SPEED_SEEDS, sentences)
        for strategy in offline.OFFLINE
    }
    return list(by_strategy.values()), offline.refill_limits(by_strategy, decoder)


def _summary(speeds: Sequence[offline.ComparedSpeed]) -> str:
    claimed = (
        "The paper decodes sentences in batches and refills a batch while it runs, so that few steps decode only a few "
        "sentences: up to 12 % faster on OpenSubtitles, and on Europarl as fast as sorting the sentences by length first."
    )
    gains = [100 * row.gain.mean for row in speeds if row.speed.strategy == "half-empty" and not row.extrapolated]
    if not gains:
        return (
            f"{claimed}\nHere occupancies follow from lengths alone; no device profile at hand has the costs of decode steps."
        )
    devices = len({row.speed.device for row in speeds})
    return (
        f"{claimed}\nHere the same strategies are simulated on the step costs of {devices} device profile"
        f"{'s' if devices > 1 else ''}: refilling at half empty changes the speed over mini-batching by {min(gains):+.1f} to "
        f"{max(gains):+.1f} %."
    )


def _notes(reproduction: Reproduction) -> list[str]:
    at_most = "" if reproduction.sentences is None else f", at most {reproduction.sentences:,},"
    limitations = [
        "Lengths are drawn: log-normal with the moments of Table 1, outputs close to their sources. The paper's sentences are "
        "not at hand.",
        f"Occupancies are means over {len(offline.SEEDS)} seeds. Speeds are of the same sentences under every strategy; "
        "brackets hold the least and the greatest over two seeds.",
        "Times are simulated on each device's step costs: where they are measured, with random weights and forced lengths. "
        "One device alternates between encoding and decoding; the paper's engine encodes beside decoding.",
        "A verdict on speeds needs the same sign in both seeds, and where it rests on the cost of refills, that this cost and "
        f"the gaps between steps were measured. Fewer sentences than those of {LEAST_BATCHES} batches decide nothing.",
        f"Online runs are of {online.BATCHES} batches' sentences{at_most} that arrive as a Poisson process, the same under "
        f"every strategy, over {len(online.SEEDS)} seeds; the first {100 * online.WARM_UP:.0f} % of a run, which find the "
        "server empty, do not count. A load is known to 2.6 %, with an interval of 95 % over seeds. No load is simulated "
        "beyond the capacity of a strategy with all sentences at hand, since the queue would grow without end.",
    ]
    if not reproduction.decoders:
        limitations.append("No device profile at hand has costs of decode steps and of the encoder: no speeds are known.")
    return limitations


def _smaller_batches(known: Sequence[Decoder]) -> list[str]:
    """Return the reasons why batches are smaller than the paper's, each with its decoders on the line below."""
    smaller = grouped([decoder for decoder in known if decoder.why_batch], "why_batch")
    names = {why: "; ".join(f"{decoder.device}, beam {decoder.beam}" for decoder in group) for (why,), group in smaller.items()}
    lines = [f"{why[:1].upper()}{why[1:]}:\n  {devices}." for why, devices in names.items()]
    return ["\n".join(lines)] if lines else []


def _tables(reproduction: Reproduction, speeds: Sequence[offline.ComparedSpeed]) -> list[Table]:
    return [
        Table(
            "table-1",
            "Table 1: test sets",
            reproduction.moments,
            [
                Column("set", "paper.name"),
                Column("sentences", "paper.sentences", digits=0),
                Column("subwords", "paper.subwords", digits=0),
                Column("subwords a sentence, published", lambda row: f"{row.paper.mean:.1f} ± {row.paper.sd:.1f}"),
                Column("drawn", lambda row: f"{row.mean:.2f} ± {row.sd:.2f}"),
            ],
            keys="set=paper.name sentences=paper.sentences subwords=paper.subwords published_mean=paper.mean "
            "published_sd=paper.sd mean sd",
        ),
        _occupancy_table(reproduction),
        Table(
            "active",
            "Share of decode steps by active sentences (figures 2, 8)",
            list(reproduction.occupancies.values()),
            keys="set=test_set strategy name share_by_active",
        ),
        _speed_table(speeds),
        _refill_table(reproduction.refill_limits),
        _load_table(reproduction.load_limits),
        Table(
            "p95-curves",
            "p95 of latency over the load",
            reproduction.curves,
            keys="device beam set=test_set strategy capacity_rps rate_rps p95_ms",
        ),
        Table(
            "devices",
            "Devices",
            reproduction.decoders,
            [
                Column("device", "device"),
                Column("model", "model", words=True),
                Column("beam", "beam", digits=0),
                Column("batches of", "batch", digits=0),
                Column("steps", "shown_kind", kind=True),
                Column("remarks", lambda row: "; ".join(row.remarks), words=True),
            ],
            small="box",
            keys="device box model beam profile batch guessed kind=shown_kind remarks",
            in_document=False,
        ),
    ]


def _occupancy_table(reproduction: Reproduction) -> Table:
    statistics = {(statistic.test_set, statistic.strategy, statistic.measure): statistic for statistic in OCCUPANCIES}
    rows = [
        {"set": test_set, "strategy": strategy, "measure": measure}
        | record(
            {"statistic": statistics.get((test_set, strategy, measure))},
            "published=statistic.published stated=statistic.stated",
        )
        | record(occupancy.spread(measure), "ours=mean least greatest")
        for (test_set, strategy), occupancy in reproduction.occupancies.items()
        for measure in MEASURES
    ]

    def text(row: Row, key: str) -> str:
        _, scale, decimals = MEASURES[row["measure"]]
        return "" if row[key] is None else f"{scale * row[key]:,.{decimals}f}"

    return Table(
        "occupancies",
        "Active sentences in decode steps, batches of 128",
        rows,
        [
            Column(
                "set, batching, measure",
                lambda row: f"{SETS[row['set']].name} {row['strategy']}, {MEASURES[row['measure']][0]}",
            ),
            Column("published", lambda row: text(row, "published")),
            Column("stated", lambda row: text(row, "stated")),
            Column(
                "ours",
                lambda row: text(row, "ours"),
                small=lambda row: f"[{text(row, 'least')}, {text(row, 'greatest')}]",
            ),
        ],
        note="Published: in the paper’s text. Stated: the known result of simulating such lengths. Square brackets hold the "
        "least and the greatest over seeds.",
        on_terminal=True,
    )


def _speed_table(rows: Sequence[offline.ComparedSpeed]) -> Table:
    columns = [
        Column(key, f"{key}.gain.ratio.mean", 3, interval=(f"{key}.gain.ratio.low", f"{key}.gain.ratio.high"))
        for key in [strategy.key for strategy in offline.OFFLINE[1:]]
    ]
    note = "Sentences a second with mini-batching, and the speed of the others over it; square brackets hold the least and the "
    note += "greatest over seeds."
    keys = "extrapolated name mean_active=speed.mean_active encode_share=speed.shares.encode "
    keys += "refill_share=speed.shares.refill decode_share=speed.shares.decode"
    title = "Speed with all sentences at hand (figures 6, 7)"
    return offline.speed_table(title, rows, columns, note, "speed.strategy", keys)


def _refill_table(rows: Sequence[offline.RefillLimit]) -> Table:
    return Table(
        "refill-limits",
        "Cost of a refill from which topping up is slower",
        rows,
        [
            Column("device", lambda row: f"{row.device}, {case_name(row.beam, row.test_set)}"),
            Column("batching", lambda row: f"{row.strategy}, against {row.against}", words=True),
            Column("in steps of a full batch", "limit_steps", digits=2, signed=True),
            Column("ms", "limit_s", digits=2, scale=1e3, signed=True),
            Column("such a step, ms", "full_step_s", significant=3, scale=1e3),
        ],
        note="Additional cost of each refill, beyond its cost on the device, from which topping up is no faster. Below 0 it is "
        "slower already. A dash: it refills no more often.",
        keys="device beam set=test_set strategy against limit_ms=limit_s*1e3 limit_steps full_step_ms=full_step_s*1e3",
    )


def _load_table(rows: Sequence[LoadLimit]) -> Table:
    groups = grouped(rows, *_CASE, "p95_ms").values()
    return Table(
        "p95-load",
        "Load up to which a p95 of latency holds",
        rows,
        [
            Column("device, p95", lambda group: _load_name(group["maxi"])),
            *(
                Column(
                    strategy.key,
                    lambda group, key=strategy.key: _load_text(group[key]),  # type: ignore[misc]
                    cell=lambda group, key=strategy.key: _load_cell(group[key], group.values()),  # type: ignore[misc]
                )
                for strategy in offline.ONLINE
            ),
        ],
        note="Sentences a second, with 95 % intervals over seeds (c: the p95 holds up to the capacity, beyond which the queue "
        "grows without end; d: it is missed at some lower load). The p95 to hold is given in times of the mean sentence alone.",
        keys="device beam set=test_set strategy name p95_ms over_solo up_to_rps=estimate.mean low_rps=estimate.low "
        "high_rps=estimate.high saturated dips",
        shown=[{row.strategy: row for row in group} for group in groups],
        on_terminal=True,
    )


def _load_name(row: LoadLimit) -> str:
    return f"{case_name(row.beam, row.test_set)}, {row.device}, {row.p95_ms:,.0f} ms ({row.over_solo:.3g} times)"


def _load_text(limit: LoadLimit) -> str:
    estimate = limit.estimate
    if not estimate.mean:
        return "never"
    spread = "" if estimate.low is None or estimate.high is None else f" ±{estimate.high - estimate.mean:.2f}"
    marks = ("c" if limit.saturated else "") + ("d" if limit.dips else "")
    return f"{estimate.mean:.2f}{spread}{' ' + marks if marks else ''}"


def _load_cell(limit: LoadLimit, beside: Sequence[LoadLimit]) -> TableCell:
    estimate = limit.estimate
    if not estimate.mean:
        return TableCell("never")
    decimals = max(2 - floor(log10(estimate.mean)), 0)
    low = None if estimate.low is None else max(estimate.low, 0.0)
    text, interval = typeset_interval(estimate.mean, low, estimate.high, signs="minus", most=decimals)
    greatest = estimate.mean == max(other.estimate.mean for other in beside)
    marks = {"the most": greatest, "capacity": limit.saturated, "not at some lower load": limit.dips}
    return TableCell(text, ", ".join(filter(None, [interval, *(mark for mark, applies in marks.items() if applies)])))


def _speed_charts(rows: Sequence[offline.ComparedSpeed]) -> list[ChartSection]:
    if not rows:
        return []
    charts = {}
    for (test_set, device), group in grouped(rows, "speed.test_set", "speed.device").items():
        rates = [f"{row.speed.sentences_per_s:.4g} with beam {row.speed.beam}" for row in group if row.speed.strategy == "mini"]
        reading = f"Mini-batching: sentences a second {', '.join(rates)}."
        charts[f"{SETS[test_set].name}, {device}"] = offline.speed_chart(group, "speed over mini-batching", reading)
    return [
        ChartSection(
            "figures-6-7",
            "Figures 6 and 7: speed with top-up batching",
            "Speed over mini-batching by beam",
            charts,
            note="All sentences at hand, simulated on each device's step costs; the devices' table has their origin. "
            "The paper's curves are not in its text; its statements are among the claims.",
            before="speeds",
        )
    ]


def _occupancy_charts(reproduction: Reproduction) -> list[ChartSection]:
    printed = {
        (statistic.test_set, statistic.strategy, statistic.measure): f" (published: {100 * statistic.published:.0f} %)"
        for statistic in OCCUPANCIES
        if statistic.published is not None
    }
    sets = grouped(reproduction.occupancies.values(), "test_set")
    share_charts = {row.name: _histogram(row, printed) for row in sets["europarl",]}
    few_charts = {SETS[test_set].name: _cumulative_chart(test_set, rows, printed) for (test_set,), rows in sets.items()}
    note = "Batches of 128, all sentences at hand. No device is needed: only lengths, which are drawn."
    figure_two = "Figure 2: share of the steps by active sentences, Europarl"
    figure_eight = "Figure 8: cumulative share of the steps by active sentences"
    return [
        ChartSection("figure-2", figure_two, "Share of the steps", share_charts, note, "occupancies", chosen="maxi"),
        ChartSection("figure-8", figure_eight, "Share of the steps, cumulative", few_charts, note, "occupancies"),
    ]


_Printed = Mapping[tuple[str, str, str], str]
"""Text on the printed figure, by set, strategy and measure."""


def _histogram(row: offline.StepOccupancy, printed: _Printed) -> Chart:
    percents = [100 * share for share in row.share_by_active]
    active = list(range(1, len(percents) + 1))
    bars = Mark("bars", active, percents, colour="policy-1", hover="%{x} active: %{y:.2f} % of the steps")
    reading = f"Full in {percents[-1]:.3g} % of the steps{printed.get((row.test_set, row.strategy, 'full_share'), '')}."
    return Chart([bars], Axis("active sentences"), Axis("share of the decode steps, %", from_zero=True), reading)


def _cumulative_chart(test_set: str, rows: Sequence[offline.StepOccupancy], printed: _Printed) -> Chart:
    lines, readings = [], []
    for place, row in enumerate(rows):
        up_to = [100 * share for share in accumulate(row.share_by_active)]
        lines.append(replace(line_series(row.name, list(range(1, len(up_to) + 1)), up_to, place, mode="lines"), step=True))
        few = printed.get((test_set, row.strategy, "below_8_share"), "")
        readings.append(f"{row.name} {100 * row.below_8_share.mean:.3g} %{few}")
    border = Mark("line", [7, 7], [0, 100], "fewer than 8", dash="dot", hover="")
    return Chart(
        [*lines, border],
        Axis("active sentences"),
        Axis("share of the decode steps, %", span=(0.0, 101.0)),
        f"{SETS[test_set].name}, fewer than 8 active: {', '.join(readings)}.",
    )
