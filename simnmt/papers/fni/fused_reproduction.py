"""The whole reproduction of the fused output layer: stages and speeds on each device, verdicts, tables and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_table
from simnmt.experiment.processes import run_in_processes
from simnmt.papers.fni import fused_published
from simnmt.papers.fni.devices import BEAMS, FusedDecoder, doubtful_profiles, fused_decoders, shipped_profiles
from simnmt.papers.fni.fused_claims import (
    device_claims,
    paper_claims,
    predicted_speed_up,
    predicted_speed_up_of_fusing,
    real_claims,
)
from simnmt.papers.fni.fused_stages import Key, SetStages, speeds, stages
from simnmt.papers.fni.offline import BY_KEY, SEEDS, Speed, gain
from simnmt.papers.fni.topup_published import SETS, SETTING
from simnmt.papers.fni.topup_reproduction import LEAST_SENTENCES
from simnmt.papers.kit.claim import describe_verdicts, format_claims
from simnmt.profile.device_profile import DeviceProfile

if TYPE_CHECKING:
    from simnmt.calibrate.decoder_speeds import RealSpeed

REAL_MODEL = "gru-512"
"""The paper's model (FNI-13)."""
SPEED_SEEDS = SEEDS[:2]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements on fusing, and ours."""

    decoders: list[FusedDecoder]
    left_out: list[str]
    """What was passed over, and why."""
    stages: dict[tuple[str, int, str], SetStages]
    """By device, beam and set."""
    speeds: dict[Key, Speed]
    real: list[RealSpeed]
    claims: list[dict[str, Any]]
    sentences: int | None = None
    """Most sentences timed per set; None: the paper's."""


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    requests: int | None = None,
    measure: int | None = None,
    model: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the paper's output layer on `profiles`, by default all shipped ones that measured decoder variants.

    `requests`: most sentences timed per set; `measure`: sentences of each mix that a real `model`, by default the paper's,
    also decodes with and without the fused output layer. Raises `InputError` for too few requests.
    """
    if requests is not None and requests < LEAST_SENTENCES:
        raise InputError(f"{requests} requests: too few to tell of batches", remedy=f"give {LEAST_SENTENCES} or more")
    known, left_out = fused_decoders(shipped_profiles() if profiles is None else profiles)
    # The real decoder runs first, so that an unreadable model is refused before minutes of simulation.
    real = _measured(model or REAL_MODEL, measure, progress) if measure is not None else []
    tasks = [_Task(decoder, key, requests) for decoder in known for key in SETS]
    worked: list[Any] = [None] * len(tasks)
    done = run_in_processes(_run, tasks, min(jobs, len(tasks))) if jobs > 1 and tasks else enumerate(map(_run, tasks))
    for count, (index, answer) in enumerate(done, start=1):
        worked[index] = answer
        if progress is not None:
            progress(count, len(tasks))
    stages_by_set = {
        (task.decoder.device, task.decoder.beam, task.test_set): set_stages
        for task, (set_stages, _) in zip(tasks, worked, strict=True)
    }
    speed_by_key = {key: set_speed for _, set_speeds in worked for key, set_speed in set_speeds.items()}
    return Reproduction(
        known,
        left_out,
        stages_by_set,
        speed_by_key,
        real,
        [*paper_claims(), *real_claims(real), *device_claims(known, stages_by_set, speed_by_key, requests)],
        requests,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    decoder: FusedDecoder
    test_set: str
    sentences: int | None

    def run(self) -> tuple[SetStages, dict[Key, Speed]]:
        set_stages = stages(self.decoder, self.test_set, SPEED_SEEDS[0], self.sentences)
        return set_stages, speeds(self.decoder, self.test_set, SPEED_SEEDS, self.sentences)


def _run(task: _Task) -> Any:
    return task.run()


def _measured(model: str, sentences: int, progress: Progress | None) -> list[RealSpeed]:
    # Imported here, so that a reproduction from profiles needs no torch.
    from simnmt.calibrate.decoder_speeds import fused_speeds

    return fused_speeds(model, sentences, BEAMS, progress=progress)


TableRows = Sequence[Mapping[str, Any]]

_NO_DEVICE = "No device at hand tells of fusing: the paper's figures stand alone."


def summary(decoders: Sequence[FusedDecoder], amdahl: TableRows, claims: TableRows) -> str:
    """Return one sentence per device and one on the claims. `amdahl`: the rows of that table."""
    boxes = {decoder.device: f"{decoder.device} ({decoder.plain.box}, {decoder.plain.model})" for decoder in decoders}
    summaries = [
        _gains(boxes.get(source, source), [row for row in amdahl if row["source"] == source])
        for source in dict.fromkeys(row["source"] for row in amdahl)
    ]
    return " ".join([*(summaries or [_NO_DEVICE]), f"{describe_verdicts(claims)}."])


def _gains(name: str, rows: TableRows) -> str:
    how = "simulated with maxi-batching" if rows[0]["kind"] == "simulated" else rows[0]["kind"]
    end_to_end, foretold, alone = (
        _range([row[key] for row in rows]) for key in ("end_to_end", "predicted", "predicted_product_left_alone")
    )
    return (
        f"On {name}, the fused output layer changes the speed of translating by {end_to_end} ({how}; foretold: {foretold}); "
        f"with the product left alone, as in the paper, {alone} would be left of it."
    )


def _range(ratios: Sequence[float]) -> str:
    """Return the range of some ratios as gains, such as `+20.1 to +22.5 %`."""
    return f"{' to '.join(dict.fromkeys(f'{100 * (ratio - 1.0):+.1f}' for ratio in (min(ratios), max(ratios))))} %"


Rows = list[dict[str, Any]]
_WEIGHTS = {"random": "random weights", "checkpoint": "trained weights"}


def document(reproduction: Reproduction) -> dict[str, Any]:
    """Return the JSON document that `--json` prints."""
    return {
        "paper": fused_published.REFERENCE,
        "summary": summary(reproduction.decoders, amdahl(reproduction), reproduction.claims),
        "claims": reproduction.claims,
        "tables": tables(reproduction),
        "devices": devices(reproduction),
        "doubts": doubtful_profiles(decoder.fused for decoder in reproduction.decoders),
        "slips": list(fused_published.SLIPS),
        "notes": notes(reproduction),
    }


def tables(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the tables, each with `id`, `title` and `rows`."""
    return [
        {"id": "setting", "title": "The paper's setting (FNI-13)", "rows": [{"what": a, "said": b} for a, b in SETTING]},
        {"id": "table-2-3", "title": "Tables 2 and 3: seconds of the output layer", "rows": output_times(reproduction)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived()},
        {"id": "shares", "title": "Shares of the time (figures 1, 5)", "rows": shares(reproduction)},
        {"id": "speeds", "title": "Speed, fused and topped up (figures 3, 4, 9, 10)", "rows": speed_rows(reproduction)},
        {"id": "amdahl", "title": "Amdahl's prediction beside each speed-up", "rows": amdahl(reproduction)},
        {"id": "real", "title": "A real decoder on this box", "rows": real(reproduction)},
    ]


def devices(reproduction: Reproduction) -> Rows:
    """Return one row per decoder: its device, beam, variants, how they are known, and remarks."""
    return [
        {
            "device": decoder.device,
            "box": decoder.plain.box,
            "model": decoder.plain.model,
            "vocab": decoder.vocab,
            "beam": decoder.beam,
            "batch": decoder.batch,
            "plain": decoder.plain_choice.short,
            "fused": decoder.fused_choice.short,
            "how": decoder.fused_choice.how,
            "kind": decoder.fused.shown_kind,
            "exact": decoder.fused_choice.exact,
            "remarks": list(_remarks(decoder)),
        }
        for decoder in reproduction.decoders
    ]


def _remarks(decoder: FusedDecoder) -> list[str]:
    src_len_remark = [] if decoder.src_len is None else [f"stages measured with sources of {decoder.src_len} tokens"]
    composed = [
        f"{choice.settings.describe()}: {choice.describe_composition()}"
        for choice in (decoder.plain_choice, decoder.fused_choice)
        if choice.how == "composed"
    ]
    return [*src_len_remark, *_level(decoder), *composed, *decoder.fused.remarks]


def _level(decoder: FusedDecoder) -> list[str]:
    """Return a remark on the ratio of the steps measured among the variants to the calibrated ones."""
    if not decoder.against_step:
        return []
    apart = [f"{ratio:.2f}" for ratio in sorted(decoder.against_step.values())]
    ratios = " to ".join(dict.fromkeys((apart[0], apart[-1])))
    return [f"steps among the variants took {ratios} times the calibrated ones: shares are theirs, seconds are not"]


def notes(reproduction: Reproduction) -> list[str]:
    """Return what limits the numbers, one or two sentences per note."""
    limitations = [
        "Lengths are drawn: log-normal with the moments of Table 1. The paper's sentences are not at hand.",
        "Seconds of a stage: measured at some batch sizes, in between a line, times the steps that have so many sentences "
        "active with maxi-batching. Shares of a step are those of the measured variants, its level is the calibrated step's.",
        "Our fused layer also multiplies block by block, so that products are still in the cache when they are searched; the "
        "paper leaves the product alone. Speeds and predictions hold what that changes; beside them stands what fusing alone "
        "foretells.",
        f"Speeds are of the same sentences with and without the fused kernel, over {len(SPEED_SEEDS)} seeds, simulated on each "
        "device's step costs. As these are made of the same stages, only a real decoder (--measure) can tell whether Amdahl's "
        "prediction holds.",
        "Fusing is exact: translations are those of the plain decoder (FNI-11), as the tests of the kernels hold it to.",
        "The paper's device is a GPU and its curves are not in its text: signs and orders can be compared, and sizes cannot.",
        *reproduction.left_out,
    ]
    if not reproduction.decoders:
        limitations.append(
            "No device profile at hand tells of a fused output layer: `simnmt calibrate --only decoder` measures it."
        )
    if reproduction.real:
        real_speed = reproduction.real[0]
        limitations.append(
            f"The real decoder: {real_speed.model} with {_WEIGHTS[real_speed.weights]} and forced lengths, float32, one "
            f"thread; each mix decoded in {len(real_speed.plain_s)} rounds, with and without the fused output layer in "
            "turn. Translations are compared where sentences end by themselves, at the forced length at the latest."
        )
    return limitations


def output_times(reproduction: Reproduction) -> Rows:
    """Return the published rows, then one row per device; `exact`: translations are the same (XP-03)."""
    rows: Rows = [
        {
            "source": "published",
            "kind": "published",
            "set": printed.test_set,
            "beam": printed.beam,
            "product_s": printed.product_s,
            "product_fused_s": printed.product_fused_s,
            "product_percent": printed.product_percent,
            "printed_product_percent": printed.printed_product_percent,
            "bias_s": printed.bias_s,
            "softmax_s": printed.softmax_s,
            "search_s": printed.search_s,
            "three_s": printed.three_s,
            "fused_s": printed.fused_s,
            "fused_percent": printed.fused_percent,
            "printed_fused_percent": printed.printed_fused_percent,
            "ratio": printed.ratio,
            "layer_ratio": printed.layer_ratio,
            "exact": True,
        }
        for printed in fused_published.TABLES
    ]
    decoders = {(decoder.device, decoder.beam): decoder for decoder in reproduction.decoders}
    for set_stages in reproduction.stages.values():
        decoder = decoders[set_stages.device, set_stages.beam]
        rows.append(
            {
                "source": set_stages.device,
                "kind": decoder.fused.shown_kind,
                "set": set_stages.test_set,
                "beam": set_stages.beam,
                "product_s": set_stages.product_s,
                "product_fused_s": set_stages.product_fused_s,
                "product_percent": 100 * set_stages.product_change,
                "printed_product_percent": None,
                "bias_s": None,
                "softmax_s": None,
                "search_s": None,
                "three_s": set_stages.three_s,
                "fused_s": set_stages.fused_s,
                "fused_percent": 100 * (set_stages.fused_s / set_stages.three_s - 1.0),
                "printed_fused_percent": None,
                "ratio": set_stages.ratio,
                "layer_ratio": set_stages.layer_ratio,
                "exact": decoder.fused_choice.exact,
            }
        )
    return rows


def derived() -> Rows:
    """Return the figures that follow from printed ones."""
    return [
        {"what": figure.what, "value": figure.value, "unit": figure.unit, "meaning": figure.meaning}
        for figure in fused_published.derived()
    ]


def shares(reproduction: Reproduction) -> Rows:
    """Return shares of the time without the fused kernel; those of one device, beam and set sum to 1."""
    return [
        {"device": set_stages.device, "beam": set_stages.beam, "set": set_stages.test_set, "part": part, "share": share}
        for set_stages in reproduction.stages.values()
        for part, share in set_stages.shares.items()
    ]


def speed_rows(reproduction: Reproduction) -> Rows:
    """Return one row per device, beam, set and strategy, fused or not.

    `relative` compares with mini- or maxi-batching without the fused kernel.
    """
    rows: Rows = []
    decoders = {(decoder.device, decoder.beam): decoder for decoder in reproduction.decoders}
    for (device, beam, test_set, strategy, fused), set_speed in reproduction.speeds.items():
        decoder = decoders[device, beam]
        choice = decoder.fused_choice if fused else decoder.plain_choice
        base = "maxi" if BY_KEY[strategy].collects else "mini"
        gain_over_base = gain(set_speed, reproduction.speeds[device, beam, test_set, base, False])
        rows.append(
            {
                "device": device,
                "beam": beam,
                "batch": decoder.batch,
                "set": test_set,
                "strategy": strategy,
                "name": BY_KEY[strategy].name,
                "fused": fused,
                "how": choice.how,
                "fidelity": choice.fidelity.describe(),
                "sentences_per_s": set_speed.sentences_per_s,
                "against": base,
                "relative": 1.0 + gain_over_base.mean,
                "relative_least": 1.0 + gain_over_base.least,
                "relative_greatest": 1.0 + gain_over_base.greatest,
                "published": _published_gain(test_set, strategy, fused),
            }
        )
    return rows


def _published_gain(test_set: str, strategy: str, fused: bool) -> float | None:
    """Return the gain that the text gives as `up to`; None where it gives none."""
    if fused:
        known = {
            "mini": fused_published.FUSED_GAIN,
            "half-empty": fused_published.BOTH_GAIN,
            "maxi half-empty": fused_published.BOTH_GAIN_WITH_MAXI,
        }
        return known[strategy][test_set] if strategy in known else None
    return fused_published.TOPUP_GAIN if (strategy, test_set) == ("half-empty", "opensubtitles") else None


def amdahl(reproduction: Reproduction) -> Rows:
    """Return predictions from shares and the output layer's speed-up, beside simulated or measured gains (XP-07)."""
    rows: Rows = []
    for (device, beam, test_set), set_stages in reproduction.stages.items():
        plain, fused = (reproduction.speeds[device, beam, test_set, "maxi", with_kernel] for with_kernel in (False, True))
        rows.append(
            {
                "source": device,
                "kind": "simulated",
                "set": test_set,
                "beam": beam,
                "output_share": set_stages.output_share,
                "layer_ratio": set_stages.layer_ratio,
                "predicted": set_stages.predicted,
                "predicted_product_left_alone": set_stages.predicted_product_left_alone,
                "end_to_end": 1.0 + gain(fused, plain).mean,
            }
        )
    for real_speed in reproduction.real:
        rows.append(
            {
                "source": "this box, real decoder",
                "kind": "measured",
                "set": real_speed.test_set,
                "beam": real_speed.beam,
                "output_share": real_speed.layer_share,
                "layer_ratio": real_speed.layer_s / real_speed.fused_layer_s,
                "predicted": predicted_speed_up(real_speed),
                "predicted_product_left_alone": predicted_speed_up_of_fusing(real_speed),
                "end_to_end": real_speed.ratio,
            }
        )
    return rows


def real(reproduction: Reproduction) -> Rows:
    """Return one row per mix and beam; empty if no real decoder was measured."""
    return [
        {
            "set": real_speed.test_set,
            "beam": real_speed.beam,
            "model": real_speed.model,
            "vocab": real_speed.vocab,
            "batch": real_speed.batch,
            "sentences": real_speed.sentences,
            "plain_s": list(real_speed.plain_s),
            "fused_s": list(real_speed.fused_s),
            "ratio": real_speed.ratio,
            "weights": real_speed.weights,
            "equal": real_speed.equal,
            "near_ties": real_speed.near_ties,
            "disagreements": real_speed.disagreements,
            "shares": real_speed.shares,
            **{f"{name}_s": seconds for name, seconds in real_speed.stages_s.items()},
        }
        for real_speed in reproduction.real
    ]


def as_text(reproduction: Reproduction) -> str:
    """Return Tables 2 and 3, speeds, Amdahl's prediction and one line per claim as text."""
    pieces = [
        _output_times(reproduction),
        *(_speeds(reproduction, key) for key in SETS if reproduction.speeds),
        _amdahl(reproduction) if reproduction.stages or reproduction.real else "",
        *reproduction.left_out,
        format_claims(reproduction.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _output_times(reproduction: Reproduction) -> str:
    rows = [
        (
            f"{SETS[row['set']].name}, beam {row['beam']}, {row['source']}",
            f"{row['product_s']:.2f}",
            f"{row['product_fused_s']:.2f}",
            f"{row['three_s']:.2f}",
            f"{row['fused_s']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['layer_ratio']:.3f}",
        )
        for row in sorted(output_times(reproduction), key=lambda row: (list(SETS).index(row["set"]), row["beam"]))
    ]
    heading = "Tables 2 and 3: seconds over a whole set; fused is exact, its translations are the same"
    head = ("set, source", "product", "fused layer's", "three steps", "fused", "ratio", "whole layer")
    return f"{heading}\n{format_table(head, rows)}"


def _speeds(reproduction: Reproduction, test_set: str) -> str:
    rows_by_decoder: dict[tuple[str, int], dict[tuple[str, bool], Any]] = {}
    for row in speed_rows(reproduction):
        if row["set"] == test_set:
            rows_by_decoder.setdefault((row["device"], row["beam"]), {})[row["strategy"], row["fused"]] = row
    rows = [
        (
            f"{device}, beam {beam}, batches of {row_by_variant['mini', False]['batch']}",
            f"{row_by_variant['mini', False]['sentences_per_s']:,.1f}",
            *(f"{row_by_variant[key]['relative']:.3f}" for key in _SHOWN),
        )
        for (device, beam), row_by_variant in rows_by_decoder.items()
    ]
    heading = f"{SETS[test_set].name}: sentences a second with mini-batching, and speeds over it; with maxi-batching over that"
    return f"{heading}\n" + format_table(("device", "mini/s", *_HEADS), rows)


_SHOWN = (
    ("mini", True),
    ("half-empty", False),
    ("half-empty", True),
    ("maxi", True),
    ("maxi half-empty", False),
    ("maxi half-empty", True),
)
_HEADS = ("fused", "topped up", "both", "maxi: fused", "topped up", "both")


def _amdahl(reproduction: Reproduction) -> str:
    rows = [
        (
            f"{SETS[row['set']].name}, beam {row['beam']}, {row['source']}",
            f"{100 * row['output_share']:.1f} %",
            f"{row['layer_ratio']:.3f}",
            f"{row['predicted']:.3f}",
            f"{row['predicted_product_left_alone']:.3f}",
            f"{row['end_to_end']:.3f}",
            row["kind"],
        )
        for row in amdahl(reproduction)
    ]
    return "Amdahl's prediction beside the speed-up end to end\n" + format_table(
        ("set, source", "layer's share", "its speed-up", "predicted", "product left alone", "end to end", ""), rows
    )
