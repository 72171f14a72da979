"""The fused output layer reproduced (`simnmt reproduce fused`): stages and speeds on each device, verdicts and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from simnmt.papers.fni import fused_claims, offline, published
from simnmt.papers.fni.cases import case_name
from simnmt.papers.fni.devices import BEAMS, FusedDecoder, doubtful_profiles, fused_decoders, shipped_profiles
from simnmt.papers.fni.published import SETS, OutputTimes
from simnmt.papers.fni.stages import Key, SetStages, over_plain, speeds, stages
from simnmt.papers.kit.claim import ClaimRecord, describe_verdicts
from simnmt.papers.kit.page import ChartSection, bars, grouped
from simnmt.papers.kit.report import PaperReport
from simnmt.papers.kit.table import Table, derived_table, percent
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.report.charts import Chart
from simnmt.report.table import Column, TableCell
from simnmt.report.typography import number, signed, typeset

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed

REAL_MODEL = "gru-512"
"""The paper's model (FNI-13)."""
_WEIGHTS = {"random": "random weights", "checkpoint": "trained weights"}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's claims on fusing, and our results."""

    decoders: list[FusedDecoder]
    left_out: list[str]
    """Messages about the profiles that were passed over."""
    stages: dict[tuple[str, int, str], SetStages]
    """By device, beam and set."""
    speeds: dict[Key, offline.Speed]
    real: list[RealSpeed]
    claims: list[ClaimRecord]
    sentences: int | None = None
    """Most sentences timed per set; None: the paper's."""

    def report(self) -> PaperReport:
        """Return the reproduction for JSON, terminal and page."""
        amdahl, compared = _amdahl_rows(self), _fused_speeds(self)
        summary = _summary(self.decoders, amdahl)
        tables = _tables(self, amdahl, compared)
        return PaperReport(
            heading="Fused softmax and search, reproduced",
            paper=published.FUSED_REFERENCE,
            claims=self.claims,
            tables=tables,
            charts=_charts(self, compared),
            setting=published.SETTING,
            setting_title="The paper's setting (FNI-13)",
            slips=published.FUSED_SLIPS,
            notes=_notes(self),
            summary=summary,
            main_claims=("FNI-15 (a)", "FNI-15 (b)", "FNI-16 (h)", "FNI-16 (j)", "FNI-17 (a)", "FNI-11"),
            main_charts=("figures-3-4", "figures-1-5"),
            matrix_note="Signs and orders can be compared; sizes depend on the device, and the paper’s is a GPU.",
            remarks=self.left_out,
            more={
                "summary": f"{summary} {describe_verdicts(self.claims)}.",
                "devices": tables[-1].records(),
                "doubts": doubtful_profiles(decoder.fused for decoder in self.decoders),
            },
        )


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    requests: int | None = None,
    measure: int | None = None,
    model: str | None = None,
    jobs: int = 1,
    progress: offline.Progress | None = None,
) -> Reproduction:
    """Time the paper's output layer on `profiles`, by default all shipped ones that measured decoder variants.

    Args:
        profiles: those without a fused variant are passed over.
        requests: most sentences timed per set; fewer than `cases.LEAST_BATCHES` batches decide no verdict on speeds.
        measure: sentences of each mix that a real decoder also decodes with and without the fused output layer.
        model: model of the real decoder; by default the paper's.
        jobs: processes.
        progress: called after each task.

    Raises:
        InputError: too few requests.
    """
    offline.check_requests(requests)
    known, left_out = fused_decoders(shipped_profiles() if profiles is None else profiles)
    real: list[RealSpeed] = []
    if measure is not None:
        # Imported here, so that a reproduction from profiles needs no torch. The real decoder runs first, so that an unreadable
        # model is refused before minutes of simulation.
        from simnmt.calibrate.decoder_speeds import fused_speeds

        real = fused_speeds(model or REAL_MODEL, measure, BEAMS, progress=progress)
    cases = [(decoder, key) for decoder in known for key in SETS]
    (results,) = offline.run_groups([[partial(_timed, *case, requests) for case in cases]], jobs, progress)
    stages_by_set = {
        (decoder.device, decoder.beam, key): set_stages for (decoder, key), (set_stages, _) in zip(cases, results, strict=True)
    }
    by_key = {key: set_speed for _, set_speeds in results for key, set_speed in set_speeds.items()}
    claims = [
        *fused_claims.paper_claims(),
        *fused_claims.real_claims(real),
        *fused_claims.device_claims(known, stages_by_set, by_key, requests),
    ]
    return Reproduction(known, left_out, stages_by_set, by_key, real, claims, requests)


def _timed(decoder: FusedDecoder, test_set: str, sentences: int | None) -> tuple[SetStages, dict[Key, offline.Speed]]:
    seeds = offline.SPEED_SEEDS
    return stages(decoder, test_set, seeds[0], sentences), speeds(decoder, test_set, seeds, sentences)


@dataclass(frozen=True, slots=True)
class AmdahlRow:
    """Amdahl's prediction of a speed-up beside the simulated or measured one (XP-07)."""

    source: str
    kind: str
    """`simulated` or `measured`."""
    test_set: str
    beam: int
    output_share: float
    layer_ratio: float
    """Speed-up of the output layer."""
    predicted: float
    predicted_product_left_alone: float
    end_to_end: float


def _amdahl_rows(reproduction: Reproduction) -> list[AmdahlRow]:
    rows = []
    for (device, beam, test_set), cell in reproduction.stages.items():
        case = device, "simulated", test_set, beam
        predictions = cell.predicted, cell.predicted_product_left_alone
        simulated = 1.0 + over_plain(reproduction.speeds, (device, beam, test_set, "maxi", True)).mean
        rows.append(AmdahlRow(*case, cell.output_share, cell.layer.layer_ratio, *predictions, simulated))
    for speed in reproduction.real:
        case = "this box, real decoder", "measured", speed.test_set, speed.beam
        predictions = fused_claims.predicted_speed_up(speed), fused_claims.predicted_speed_up_of_fusing(speed)
        rows.append(AmdahlRow(*case, speed.layer_share, speed.layer_s / speed.fused_layer_s, *predictions, speed.ratio))
    return rows


def _summary(decoders: Sequence[FusedDecoder], amdahl: Sequence[AmdahlRow]) -> str:
    """Return one sentence per device."""
    boxes = {decoder.device: f"{decoder.device} ({decoder.plain.box}, {decoder.plain.model})" for decoder in decoders}
    sentences = []
    for (source,), rows in grouped(amdahl, "source").items():
        how = "simulated with maxi-batching" if rows[0].kind == "simulated" else rows[0].kind
        sentences.append(
            f"On {boxes.get(source, source)}, the fused output layer changes the speed of translating by "
            f"{_range([row.end_to_end for row in rows])} ({how}; predicted: {_range([row.predicted for row in rows])}); with "
            "the product left alone, as in the paper, "
            f"{_range([row.predicted_product_left_alone for row in rows])} would remain."
        )
    return " ".join(sentences) or "No device profile at hand has a fused output layer: only the paper's own figures are shown."


def _range(ratios: Sequence[float]) -> str:
    """Return the range of some ratios as gains, such as `+20.1 to +22.5 %`."""
    return f"{' to '.join(dict.fromkeys(f'{100 * (ratio - 1.0):+.1f}' for ratio in (min(ratios), max(ratios))))} %"


def _notes(reproduction: Reproduction) -> list[str]:
    limitations = [
        "Lengths are drawn: log-normal with the moments of Table 1. The paper's sentences are not at hand.",
        "Seconds of a stage: measured at some batch sizes, interpolated linearly between them, times the steps with so many "
        "active sentences with maxi-batching. Shares of a step are those of the measured variants, its level is the calibrated "
        "step's.",
        "Our fused layer also multiplies block by block, so that products are still in the cache when they are searched; the "
        "paper leaves the product alone. Speeds and predictions include this change; beside them is the prediction of "
        "fusing alone.",
        f"Speeds are of the same sentences with and without the fused kernel, over {len(offline.SPEED_SEEDS)} seeds, simulated "
        "on each device's step costs. These consist of the same stages, so only a real decoder (--measure) can test Amdahl's "
        "prediction.",
        "Fusing is exact: translations are those of the plain decoder (FNI-11); the tests of the kernels check this.",
        "The paper's device is a GPU and its curves are not in its text: signs and orders can be compared, and sizes cannot.",
        *reproduction.left_out,
    ]
    if not reproduction.decoders:
        limitations.append("No device profile at hand has a fused output layer: `simnmt calibrate --part decoder` measures it.")
    if reproduction.real:
        speed = reproduction.real[0]
        limitations.append(
            f"The real decoder: {speed.model} with {_WEIGHTS[speed.weights]} and forced lengths, float32, one thread; each mix "
            f"decoded in {len(speed.plain_s)} rounds, alternately with and without the fused output layer. Translations are "
            "compared where sentences end by themselves, at the forced length at the latest."
        )
    return limitations


@dataclass(frozen=True, slots=True)
class FusedSpeed(offline.ComparedSpeed):
    """A speed, fused or not, beside its baseline and the paper's gain."""

    choice: DecoderChoice
    fused: bool
    published: float | None
    """The gain that the text prints as `up to`; None if it prints none."""

    @property
    def name(self) -> str:
        """Strategy and kernel."""
        names = {"half-empty": "topped up", "maxi half-empty": "maxi, topped up"}
        return f"{names.get(self.speed.strategy, self.speed.strategy)}{', fused' if self.fused else ''}"

    @property
    def fidelity(self) -> str:
        """The decoder's agreement with the exact decoder."""
        return self.choice.fidelity.describe()

    @property
    def against(self) -> str:
        """Strategy of the baseline."""
        return offline.BY_KEY[self.speed.strategy].baseline


def _fused_speeds(reproduction: Reproduction) -> list[FusedSpeed]:
    decoders = {(decoder.device, decoder.beam): decoder for decoder in reproduction.decoders}
    published_gains = {
        ("mini", True): published.FUSED_GAIN,
        ("half-empty", True): published.BOTH_GAIN,
        ("maxi half-empty", True): published.BOTH_GAIN_WITH_MAXI,
        ("half-empty", False): {"opensubtitles": published.TOPUP_GAIN},
    }
    rows = []
    for key, timed in reproduction.speeds.items():
        device, beam, test_set, strategy, fused = key
        decoder = decoders[device, beam]
        choice = decoder.fused_choice if fused else decoder.plain_choice
        theirs = published_gains.get((strategy, fused), {}).get(test_set)
        rows.append(FusedSpeed(decoder.decoder(fused), timed, over_plain(reproduction.speeds, key), choice, fused, theirs))
    return rows


def _tables(reproduction: Reproduction, amdahl: Sequence[AmdahlRow], compared: Sequence[FusedSpeed]) -> list[Table]:
    shares = [
        {"device": device, "beam": beam, "set": test_set, "part": part, "share": share}
        for (device, beam, test_set), cell in reproduction.stages.items()
        for part, share in cell.shares.items()
    ]
    return [
        _output_table(_output_times(reproduction)),
        derived_table(published.derived()),
        Table("shares", "Shares of the time (figures 1, 5)", shares),
        _speed_table(compared),
        Table(
            "amdahl",
            "Amdahl's prediction beside each speed-up",
            amdahl,
            [
                Column("set, source", lambda row: case_name(row.beam, row.test_set)),
                Column("how", "kind", kind=True),
                percent("layer's share, %", "output_share", 1),
                Column("its speed-up", "layer_ratio", digits=3),
                Column("predicted", "predicted", digits=3),
                Column("product left alone", "predicted_product_left_alone", digits=3),
                Column("end to end", "end_to_end", digits=3),
            ],
            note="From the output layer’s share of the time and its own speed-up. Ours multiplies block by block, which plain "
            "decoding might do as well: beside it is the prediction of fusing alone, the product left alone as in the paper. "
            "Simulated speed-ups consist of the same stages; a measured one is a test where it is not within the 10 % allowed "
            "of 1.",
            small="source",
            keys="source kind set=test_set beam output_share layer_ratio predicted predicted_product_left_alone end_to_end",
            on_terminal=True,
        ),
        _real_table(reproduction.real),
        Table(
            "devices",
            "Devices",
            reproduction.decoders,
            [
                Column("device", lambda row: f"{row.device}, beam {row.beam}"),
                Column("model", lambda row: f"{row.plain.model}, {row.vocab:,} words", words=True),
                Column("batches of", "plain.batch", digits=0),
                Column("kind", "fused.shown_kind", kind=True),
                Column("without", "plain_choice.short", words=True),
                Column("fused", "fused_choice.short", words=True),
                Column("remarks", lambda row: "; ".join(row.remarks), words=True),
            ],
            note="Origin of each profile’s decoder, with the fused kernel and without.",
            small="plain.box",
            keys="device box=plain.box model=plain.model vocab beam batch=plain.batch plain=plain_choice.short "
            "fused=fused_choice.short how=fused_choice.how kind=fused.shown_kind exact=fused_choice.exact remarks",
            in_document=False,
        ),
    ]


def _output_times(reproduction: Reproduction) -> list[OutputTimes]:
    return [*published.TABLES, *(cell.layer for cell in reproduction.stages.values())]


def _output_table(rows: Sequence[OutputTimes]) -> Table:
    order = list(SETS)
    return Table(
        "table-2-3",
        "Tables 2 and 3: seconds of the output layer over a whole set",
        rows,
        [
            Column("set, source", lambda row: case_name(row.beam, row.test_set)),
            Column("how", "kind", kind=True, on_terminal=False),
            Column("product", "product_s", digits=2),
            Column("fused layer's", "product_fused_s", digits=2),
            Column(
                "product’s change, %",
                "product_percent",
                cell=lambda row: _change(row.product_percent, row.printed_product_percent),
                on_terminal=False,
            ),
            Column("three steps", "three_s", digits=2, small=_three_parts),
            Column("fused", "fused_s", digits=2),
            Column(
                "their change, %",
                "fused_percent",
                cell=lambda row: _change(row.fused_percent, row.printed_fused_percent),
                on_terminal=False,
            ),
            Column("ratio", "ratio", digits=2),
            Column("whole layer", "layer_ratio", digits=3),
        ],
        note="Three steps: bias, softmax and search; the ratio is theirs over fused. Our fused layer takes its product block "
        "by block; the paper leaves it alone. Small print: the paper’s figure of a change, where its seconds give another. "
        "Fusing is exact: translations stay as they are.",
        published="kind",
        keys="source kind set=test_set beam product_s product_fused_s product_percent printed_product_percent bias_s softmax_s "
        "search_s three_s fused_s fused_percent printed_fused_percent ratio layer_ratio exact",
        small="source",
        shown=sorted(rows, key=lambda row: (order.index(row.test_set), row.beam)),
        on_terminal=True,
    )


def _three_parts(row: OutputTimes) -> str:
    parts = (row.bias_s, row.softmax_s, row.search_s)
    return " + ".join(f"{part:.2f}" for part in parts if part is not None)


def _change(value: float, printed: float | None) -> TableCell:
    slip = printed is not None and abs(printed - value) > 0.06
    return TableCell(signed(value, 2), f"printed {signed(printed, 1)}" if slip and printed is not None else "")


def _speed_table(rows: Sequence[FusedSpeed]) -> Table:
    heads = {
        "fused": "mini, fused",
        "topped up": "topped up",
        "both": "topped up, fused",
        "maxi: fused": "maxi, fused",
        "maxi: topped up": "maxi, topped up",
        "maxi: both": "maxi, topped up, fused",
    }
    columns = [
        Column(head, f"{name}.gain.ratio.mean", 3, cell=lambda group, name=name: _speed_cell(group[name]))  # type: ignore[misc]
        for head, name in heads.items()
    ]
    note = (
        "All sentences at hand: sentences a second with mini-batching, and speeds over it, with maxi-batching over that. "
        "Square brackets hold the least and the greatest over seeds."
    )
    title = "Speed, fused and topped up (figures 3, 4, 9, 10)"
    return offline.speed_table(title, rows, columns, note, "name", "name fused how=choice.how fidelity against published")


def _speed_cell(row: FusedSpeed) -> TableCell:
    ratio = row.gain.ratio
    small = f"[{ratio.low:.3f}, {ratio.high:.3f}], {row.speed.sentences_per_s:.4g} a second"
    theirs = "" if row.published is None else f", published up to {1 + row.published:.2f}"
    return TableCell(number(ratio.mean, 3), typeset(f"{small}{theirs}"))


def _real_table(rows: Sequence[RealSpeed]) -> Table:
    stages_s = {
        "product": "product",
        "bias": "bias",
        "softmax": "softmax",
        "search": "search",
        "product, fused layer’s": "fused_product",
        "fused": "fused",
    }
    return Table(
        "real",
        "A real decoder on this box",
        rows,
        [
            Column("set", lambda row: case_name(row.beam, row.test_set)),
            Column("sentences", "sentences", digits=0),
            Column("times as fast", "ratio", digits=3),
            Column("translations the same", "equal", digits=0),
            Column("near ties", "near_ties", digits=0),
            Column("other differences", "disagreements", digits=0),
            *(Column(head, f"stages_s.{stage}", digits=2) for head, stage in stages_s.items()),
        ],
        note="Rounds alternate with and without the fused output layer; stages in seconds over all steps. Translations are "
        "compared where sentences end by themselves; near ties are closer than 1e-4.",
        small=lambda row: f"{row.model}, {row.vocab:,} words",
        keys="set=test_set beam model vocab batch sentences plain_s ratio weights equal near_ties disagreements shares "
        + " ".join(f"{stage}_s=stages_s.{stage}" for stage in ("body", *stages_s.values())),
    )


def _charts(reproduction: Reproduction, compared: Sequence[FusedSpeed]) -> list[ChartSection]:
    if not compared:
        return []
    by_device = grouped(reproduction.stages.values(), "layer.source")
    sections = [
        ChartSection(
            "figures-1-5",
            "Figures 1 and 5: shares of the time",
            "Share of the time by part",
            {device: _share_chart(device, cells) for (device,), cells in by_device.items()},
            note="Without the fused kernel, maxi-batching.",
        )
    ]
    by_set = grouped(compared, "speed.device", "speed.test_set")
    for identifier, title, strategies in (
        ("figures-3-4", "Figures 3 and 4: speed with the fused kernel", ("mini",)),
        ("figures-9-10", "Figures 9 and 10: cumulative results", ("mini", "half-empty")),
        ("figures-9-10-maxi", "Figures 9 and 10, with maxi-batching", ("maxi", "maxi half-empty")),
    ):
        charts = {
            f"{SETS[test_set].name}, {device}": _speed_chart(rows, strategies) for (device, test_set), rows in by_set.items()
        }
        note = (
            f"All sentences at hand, over {strategies[0]}-batching without the fused kernel; whiskers hold the least and the "
            "greatest over seeds. The paper's curves are not in its text."
        )
        sections.append(ChartSection(identifier, title, "Speed by beam", charts, note, before="speeds"))
    return sections


def _share_chart(device: str, cells: Sequence[SetStages]) -> Chart:
    names = [case_name(cell.layer.beam, cell.layer.test_set) for cell in cells]
    shares = ", ".join(f"{name} {100 * cell.output_share:.0f} %" for name, cell in zip(names, cells, strict=True))
    reading = f"Output layer on {device}: {shares} (published: nearly 70 % of Europarl, more of OpenSubtitles)."
    series = {part: [100 * cell.shares[part] for cell in cells] for part in cells[0].shares}
    return bars(names, "% of the time", reading, series, stacked=True)


def _speed_chart(rows: Sequence[FusedSpeed], strategies: Sequence[str]) -> Chart:
    shown = [row for row in rows if row.speed.strategy in strategies]
    gains = {row.name: row.published for row in shown if row.published is not None}
    theirs = ", ".join(f"{name} up to {1 + gained:.2f}" for name, gained in gains.items())
    reading = f"{SETS[rows[0].speed.test_set].name}, {rows[0].speed.device}."
    reading += f" Published: {theirs}." if theirs else ""
    return offline.speed_chart(shown, f"speed over {strategies[0]}-batching", reading)
