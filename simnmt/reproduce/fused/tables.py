"""The reproduction's tables, as JSON keeps them and the page shows them."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.fused import published
from simnmt.reproduce.fused.claims import predicted, predicted_product_left_alone
from simnmt.reproduce.fused.devices import FusedDecoder
from simnmt.reproduce.fused.reproduction import SPEED_SEEDS, Reproduction
from simnmt.reproduce.fused.summary import summary
from simnmt.reproduce.topup.devices import doubtful_profiles
from simnmt.reproduce.topup.published import SETTING
from simnmt.reproduce.topup.speeds import gain
from simnmt.reproduce.topup.strategies import BY_KEY

Rows = list[dict[str, Any]]
_WEIGHTS = {"random": "random weights", "checkpoint": "trained weights"}


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "summary": summary(found.decoders, amdahl(found), found.claims),
        "claims": found.claims,
        "tables": tables(found),
        "devices": devices(found),
        "doubts": doubtful_profiles(decoder.fused for decoder in found.decoders),
        "slips": list(published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`."""
    return [
        {"id": "setting", "title": "The paper's setting (FNI-13)", "rows": [{"what": a, "said": b} for a, b in SETTING]},
        {"id": "table-2-3", "title": "Tables 2 and 3: seconds of the output layer", "rows": output_times(found)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived()},
        {"id": "shares", "title": "Shares of the time (figures 1, 5)", "rows": shares(found)},
        {"id": "speeds", "title": "Speed, fused and topped up (figures 3, 4, 9, 10)", "rows": speeds(found)},
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
        for each in published.TABLES
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
        {"what": each.what, "value": each.value, "unit": each.unit, "meaning": each.meaning} for each in published.derived()
    ]


def shares(found: Reproduction) -> Rows:
    """Of the time without the fused kernel; those of one device, beam and set sum to 1."""
    return [
        {"device": each.device, "beam": each.beam, "set": each.test_set, "part": part, "share": share}
        for each in found.stages.values()
        for part, share in each.shares.items()
    ]


def speeds(found: Reproduction) -> Rows:
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
            "mini": published.FUSED_GAIN,
            "half-empty": published.BOTH_GAIN,
            "maxi half-empty": published.BOTH_GAIN_WITH_MAXI,
        }
        return known[strategy][test_set] if strategy in known else None
    return published.TOPUP_GAIN if (strategy, test_set) == ("half-empty", "opensubtitles") else None


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
                "predicted": predicted(own),
                "predicted_product_left_alone": predicted_product_left_alone(own),
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
