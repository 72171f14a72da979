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
    """That were timed, of a set, at most; None: the paper's."""


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    requests: int | None = None,
    measure: int | None = None,
    model: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the paper's output layer on `profiles`, by default all that are shipped and tell of variants of their decoder.

    `requests`: sentences that are timed at most, of a set; `measure`: sentences of each mix that a real `model` decodes as
    well, by default the paper's, with the fused output layer and without. Raises `InputError` for too few requests.
    """
    if requests is not None and requests < LEAST_SENTENCES:
        raise InputError(f"{requests} requests: too few to tell of batches", remedy=f"give {LEAST_SENTENCES} or more")
    known, left_out = fused_decoders(shipped_profiles() if profiles is None else profiles)
    # First: a model that cannot be read is refused before minutes of simulation.
    real = _measured(model or REAL_MODEL, measure, progress) if measure is not None else []
    tasks = [_Task(each, key, requests) for each in known for key in SETS]
    worked: list[Any] = [None] * len(tasks)
    done = run_in_processes(_run, tasks, min(jobs, len(tasks))) if jobs > 1 and tasks else enumerate(map(_run, tasks))
    for count, (index, answer) in enumerate(done, start=1):
        worked[index] = answer
        if progress is not None:
            progress(count, len(tasks))
    found_stages = {
        (task.decoder.device, task.decoder.beam, task.test_set): own for task, (own, _) in zip(tasks, worked, strict=True)
    }
    found_speeds = {key: each for _, own in worked for key, each in own.items()}
    return Reproduction(
        known,
        left_out,
        found_stages,
        found_speeds,
        real,
        [*paper_claims(), *real_claims(real), *device_claims(known, found_stages, found_speeds, requests)],
        requests,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    decoder: FusedDecoder
    test_set: str
    sentences: int | None

    def run(self) -> tuple[SetStages, dict[Key, Speed]]:
        own = stages(self.decoder, self.test_set, SPEED_SEEDS[0], self.sentences)
        return own, speeds(self.decoder, self.test_set, SPEED_SEEDS, self.sentences)


def _run(task: _Task) -> Any:
    return task.run()


def _measured(model: str, sentences: int, progress: Progress | None) -> list[RealSpeed]:
    # Here, so that a reproduction from profiles needs no torch.
    from simnmt.calibrate.decoder_speeds import fused_speeds

    return fused_speeds(model, sentences, BEAMS, progress=progress)


TableRows = Sequence[Mapping[str, Any]]

_NO_DEVICE = "No device at hand tells of fusing: the paper's figures stand alone."


def summary(decoders: Sequence[FusedDecoder], amdahl: TableRows, claims: TableRows) -> str:
    """A sentence per device and one on the claims. `amdahl`: the rows of that table."""
    boxes = {each.device: f"{each.device} ({each.plain.box}, {each.plain.model})" for each in decoders}
    told = [
        _gains(boxes.get(source, source), [row for row in amdahl if row["source"] == source])
        for source in dict.fromkeys(row["source"] for row in amdahl)
    ]
    return " ".join([*(told or [_NO_DEVICE]), f"{describe_verdicts(claims)}."])


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
    """`+20.1 to +22.5 %`."""
    return f"{' to '.join(dict.fromkeys(f'{100 * (ratio - 1.0):+.1f}' for ratio in (min(ratios), max(ratios))))} %"


Rows = list[dict[str, Any]]
_WEIGHTS = {"random": "random weights", "checkpoint": "trained weights"}


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": fused_published.REFERENCE,
        "summary": summary(found.decoders, amdahl(found), found.claims),
        "claims": found.claims,
        "tables": tables(found),
        "devices": devices(found),
        "doubts": doubtful_profiles(decoder.fused for decoder in found.decoders),
        "slips": list(fused_published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`."""
    return [
        {"id": "setting", "title": "The paper's setting (FNI-13)", "rows": [{"what": a, "said": b} for a, b in SETTING]},
        {"id": "table-2-3", "title": "Tables 2 and 3: seconds of the output layer", "rows": output_times(found)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived()},
        {"id": "shares", "title": "Shares of the time (figures 1, 5)", "rows": shares(found)},
        {"id": "speeds", "title": "Speed, fused and topped up (figures 3, 4, 9, 10)", "rows": speed_rows(found)},
        {"id": "amdahl", "title": "Amdahl's prediction beside each speed-up", "rows": amdahl(found)},
        {"id": "real", "title": "A real decoder on this box", "rows": real(found)},
    ]


def devices(found: Reproduction) -> Rows:
    """Which device with which beam, how its variants are known, and what is to be said of it."""
    return [
        {
            "device": each.device,
            "box": each.plain.box,
            "model": each.plain.model,
            "vocab": each.vocab,
            "beam": each.beam,
            "batch": each.batch,
            "plain": each.plain_choice.short,
            "fused": each.fused_choice.short,
            "how": each.fused_choice.how,
            "kind": each.fused.shown_kind,
            "exact": each.fused_choice.exact,
            "remarks": list(_remarks(each)),
        }
        for each in found.decoders
    ]


def _remarks(each: FusedDecoder) -> list[str]:
    told = [] if each.src_len is None else [f"stages measured with sources of {each.src_len} tokens"]
    composed = [
        f"{choice.settings.words()}: {choice.composition_words()}"
        for choice in (each.plain_choice, each.fused_choice)
        if choice.how == "composed"
    ]
    return [*told, *_level(each), *composed, *each.fused.remarks]


def _level(each: FusedDecoder) -> list[str]:
    """How far both measurements of the same steps lie apart."""
    if not each.against_step:
        return []
    apart = [f"{ratio:.2f}" for ratio in sorted(each.against_step.values())]
    told = " to ".join(dict.fromkeys((apart[0], apart[-1])))
    return [f"steps among the variants took {told} times the calibrated ones: shares are theirs, seconds are not"]


def notes(found: Reproduction) -> list[str]:
    """What limits the numbers."""
    said = [
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
        *found.left_out,
    ]
    if not found.decoders:
        said.append("No device profile at hand tells of a fused output layer: `simnmt calibrate --only decoder` measures it.")
    if found.real:
        said.append(
            f"The real decoder: {found.real[0].model} with {_WEIGHTS[found.real[0].weights]} and forced lengths, float32, one "
            f"thread; each mix decoded in {len(found.real[0].plain_s)} rounds, with and without the fused output layer in "
            "turn. Translations are compared where sentences end by themselves, at the forced length at the latest."
        )
    return said


def output_times(found: Reproduction) -> Rows:
    """Published, then one row per device; `fused_exact`: translations are the same (XP-03)."""
    rows: Rows = [
        {
            "source": "published",
            "kind": "published",
            "set": each.test_set,
            "beam": each.beam,
            "product_s": each.product_s,
            "product_fused_s": each.product_fused_s,
            "product_percent": each.product_percent,
            "printed_product_percent": each.printed_product_percent,
            "bias_s": each.bias_s,
            "softmax_s": each.softmax_s,
            "search_s": each.search_s,
            "three_s": each.three_s,
            "fused_s": each.fused_s,
            "fused_percent": each.fused_percent,
            "printed_fused_percent": each.printed_fused_percent,
            "ratio": each.ratio,
            "layer_ratio": each.layer_ratio,
            "exact": True,
        }
        for each in fused_published.TABLES
    ]
    kinds = {(each.device, each.beam): each for each in found.decoders}
    for each in found.stages.values():
        own = kinds[each.device, each.beam]
        rows.append(
            {
                "source": each.device,
                "kind": own.fused.shown_kind,
                "set": each.test_set,
                "beam": each.beam,
                "product_s": each.product_s,
                "product_fused_s": each.product_fused_s,
                "product_percent": 100 * each.product_change,
                "printed_product_percent": None,
                "bias_s": None,
                "softmax_s": None,
                "search_s": None,
                "three_s": each.three_s,
                "fused_s": each.fused_s,
                "fused_percent": 100 * (each.fused_s / each.three_s - 1.0),
                "printed_fused_percent": None,
                "ratio": each.ratio,
                "layer_ratio": each.layer_ratio,
                "exact": own.fused_choice.exact,
            }
        )
    return rows


def derived() -> Rows:
    """Figures that follow from printed ones."""
    return [
        {"what": each.what, "value": each.value, "unit": each.unit, "meaning": each.meaning}
        for each in fused_published.derived()
    ]


def shares(found: Reproduction) -> Rows:
    """Of the time without the fused kernel; those of one device, beam and set sum to 1."""
    return [
        {"device": each.device, "beam": each.beam, "set": each.test_set, "part": part, "share": share}
        for each in found.stages.values()
        for part, share in each.shares.items()
    ]


def speed_rows(found: Reproduction) -> Rows:
    """One row per device, beam, set, strategy, fused or not; `relative`: to the same batching's kind without the kernel."""
    rows: Rows = []
    decoders = {(each.device, each.beam): each for each in found.decoders}
    for (device, beam, test_set, strategy, fused), each in found.speeds.items():
        decoder = decoders[device, beam]
        choice = decoder.fused_choice if fused else decoder.plain_choice
        base = "maxi" if BY_KEY[strategy].collects else "mini"
        own = gain(each, found.speeds[device, beam, test_set, base, False])
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
                "fidelity": choice.fidelity,
                "sentences_per_s": each.sentences_per_s,
                "against": base,
                "relative": 1.0 + own.mean,
                "relative_least": 1.0 + own.least,
                "relative_greatest": 1.0 + own.greatest,
                "published": _published_gain(test_set, strategy, fused),
            }
        )
    return rows


def _published_gain(test_set: str, strategy: str, fused: bool) -> float | None:
    """The `up to` of the text."""
    if fused:
        known = {
            "mini": fused_published.FUSED_GAIN,
            "half-empty": fused_published.BOTH_GAIN,
            "maxi half-empty": fused_published.BOTH_GAIN_WITH_MAXI,
        }
        return known[strategy][test_set] if strategy in known else None
    return fused_published.TOPUP_GAIN if (strategy, test_set) == ("half-empty", "opensubtitles") else None


def amdahl(found: Reproduction) -> Rows:
    """Predicted from shares and the output layer's speed-up, beside what is simulated, or measured (XP-07)."""
    rows: Rows = []
    for (device, beam, test_set), each in found.stages.items():
        plain, fused = (found.speeds[device, beam, test_set, "maxi", own] for own in (False, True))
        rows.append(
            {
                "source": device,
                "kind": "simulated",
                "set": test_set,
                "beam": beam,
                "output_share": each.output_share,
                "layer_ratio": each.layer_ratio,
                "predicted": each.predicted,
                "predicted_product_left_alone": each.predicted_product_left_alone,
                "end_to_end": 1.0 + gain(fused, plain).mean,
            }
        )
    for own in found.real:
        rows.append(
            {
                "source": "this box, real decoder",
                "kind": "measured",
                "set": own.test_set,
                "beam": own.beam,
                "output_share": own.layer_share,
                "layer_ratio": own.layer_s / own.fused_layer_s,
                "predicted": predicted_speed_up(own),
                "predicted_product_left_alone": predicted_speed_up_of_fusing(own),
                "end_to_end": own.ratio,
            }
        )
    return rows


def real(found: Reproduction) -> Rows:
    """One row per mix and beam; empty where no real decoder was asked."""
    return [
        {
            "set": each.test_set,
            "beam": each.beam,
            "model": each.model,
            "vocab": each.vocab,
            "batch": each.batch,
            "sentences": each.sentences,
            "plain_s": list(each.plain_s),
            "fused_s": list(each.fused_s),
            "ratio": each.ratio,
            "weights": each.weights,
            "equal": each.equal,
            "near_ties": each.near_ties,
            "disagreements": each.disagreements,
            "shares": each.shares,
            **{f"{name}_s": seconds for name, seconds in each.stages_s.items()},
        }
        for each in found.real
    ]


def as_text(found: Reproduction) -> str:
    """Tables 2 and 3, speeds, Amdahl's prediction, and a line per claim."""
    pieces = [
        _output_times(found),
        *(_speeds(found, key) for key in SETS if found.speeds),
        _amdahl(found) if found.stages or found.real else "",
        *found.left_out,
        format_claims(found.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _output_times(found: Reproduction) -> str:
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
        for row in sorted(output_times(found), key=lambda row: (list(SETS).index(row["set"]), row["beam"]))
    ]
    heading = "Tables 2 and 3: seconds over a whole set; fused is exact, its translations are the same"
    head = ("set, source", "product", "fused layer's", "three steps", "fused", "ratio", "whole layer")
    return f"{heading}\n{format_table(head, rows)}"


def _speeds(found: Reproduction, test_set: str) -> str:
    known: dict[tuple[str, int], dict[tuple[str, bool], Any]] = {}
    for row in speed_rows(found):
        if row["set"] == test_set:
            known.setdefault((row["device"], row["beam"]), {})[row["strategy"], row["fused"]] = row
    rows = [
        (
            f"{device}, beam {beam}, batches of {own['mini', False]['batch']}",
            f"{own['mini', False]['sentences_per_s']:,.1f}",
            *(f"{own[key]['relative']:.3f}" for key in _SHOWN),
        )
        for (device, beam), own in known.items()
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


def _amdahl(found: Reproduction) -> str:
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
        for row in amdahl(found)
    ]
    return "Amdahl's prediction beside the speed-up end to end\n" + format_table(
        ("set, source", "layer's share", "its speed-up", "predicted", "product left alone", "end to end", ""), rows
    )
