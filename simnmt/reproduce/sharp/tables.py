"""The reproduction's tables, as JSON keeps them and the page shows them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sharp import published
from simnmt.reproduce.sharp.predicted import predicted_int16, predicted_ladder, predicted_over, product_gain, product_share
from simnmt.reproduce.sharp.reproduction import Reproduction

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, SharpSpeeds

Rows = list[dict[str, Any]]


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "claims": found.claims,
        "tables": tables(found),
        "level": found.speeds.level,
        "slips": list(published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`."""
    speeds = found.speeds
    return [
        {
            "id": "setting",
            "title": "The paper's setting (SHARP-16)",
            "rows": [{"what": what, "said": said} for what, said in published.SETTING],
        },
        {"id": "table-1", "title": "Table 1: the ladder", "rows": ladder(speeds, found.agreements)},
        {"id": "amdahl", "title": "The 16-bit product by Amdahl's law", "rows": [amdahl(speeds)]},
        {"id": "agreement", "title": "What each rung changes on a trained model", "rows": agreement(found)},
        {"id": "stages", "title": "Where a word's time goes", "rows": stages(speeds)},
        {"id": "table-2", "title": "Table 2: systems", "rows": systems(speeds)},
        {"id": "context", "title": "Table 2: others' systems, as published", "rows": context()},
        {"id": "figure-1", "title": "Figure 1: 16-bit and 32-bit products", "rows": products(speeds)},
        {"id": "activations", "title": "Sigmoid and tanh", "rows": activations(speeds)},
        {"id": "derived", "title": "What follows from the printed figures", "rows": derived()},
    ]


def notes(found: Reproduction) -> list[str]:
    """What limits the numbers."""
    setting, level = found.speeds.setting, found.speeds.level
    said = [
        f"One thread; beam {setting.beam}, {setting.src_len} source words, {setting.tgt_len} target words of forced length, "
        f"{setting.candidates} candidates of a vocabulary of {found.speeds.vocab:,}; random weights of the paper's shapes, "
        "with embeddings of 512, which the paper leaves open.",
        "Words a second include the source side (three bidirectional GRU layers of 512; of S7 eight LSTM layers), as the "
        "paper's do. The same rungs switch its 16-bit products, kept products of embeddings and activations; the decoder alone "
        "stands beside it.",
        "Each timed translation follows another one of the same decoder, as in a text: it finds its weights as that left them.",
        f"All that is compared takes turns, in {len(found.speeds.systems[0].sentence_s)} rounds or more; figures are medians, "
        "factors medians of the rounds' ratios, and a verdict is clear where their quartiles agree.",
        "The baseline multiplies float32 weights packed as ours are in 16 bits; the paper's is a library that cannot pack.",
        "Predictions: counted multiply-adds at the measured rates of products of as many rows as the beam has (of one row for "
        "the source side's states), with weights from memory where the last cache cannot hold them, counted activations at "
        "theirs, and the rest of the baseline as it is. Those of systems: multiply-adds alone.",
        "Embeddings: the products of the 8,000 most frequent words are kept, which 95 % of the candidates belong to, as the "
        "paper says of tokens.",
        "Exact rungs are identities: the same translations. How many words the others leave the same is asked of a "
        "trained model (--model, --text), with the whole vocabulary; the paper prints 99.9 % and more.",
        "BLEU of the paper's systems is shown as published: it needs models trained on 380 million words.",
        f"Compiled kernels: {level}."
        if level
        else "No compiled kernels: the fallback in numpy ran, whose times say nothing of the paper's techniques.",
    ]
    said += [f"The trained model: {warning}." for warning in found.warnings]
    if found.quick:
        said.append(
            "A quick look: fewer rounds, some of the systems and of figure 1's batches, and a smaller vocabulary, whose "
            "embeddings are in the cache more often."
        )
    return said


def ladder(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = ()) -> Rows:
    """Published and measured, rung by rung; from the fifth on with table and polynomial activations.

    `agreement`: share of the words that are the baseline's on a trained model, with all rungs so far; None: not asked (XP-03).
    """
    known = {each.settings: each.share for each in agreements}
    rows: Rows = []
    for way, own in speeds.ladder.items():
        predictions = predicted_ladder(speeds, own)
        for place, (rung, each) in enumerate(zip(published.LADDER, own, strict=True)):
            if each.settings.activations == "library" and way != "table":
                continue
            before = own[place - 1] if place else None
            rows.append(
                {
                    "rung": rung.key,
                    "name": rung.name,
                    "activations": each.settings.activations,
                    "settings": each.settings.words(),
                    "published_words_per_s": rung.words_per_s,
                    "printed_factor": rung.printed_factor,
                    "published_factor": rung.factor,
                    "published_step": rung.step,
                    "words_per_s": each.words_per_s,
                    "ms_per_word": 1e3 * each.word_s,
                    "factor": each.over(own[0]),
                    "decoder_factor": each.decoder_over(own[0]),
                    "source_ms": 1e3 * statistics.median(each.source_s),
                    "step": None if before is None else each.over(before),
                    "step_low": None if before is None else _quartiles(each, before)[0],
                    "step_high": None if before is None else _quartiles(each, before)[1],
                    "predicted_factor": predictions[place],
                    "multiply_adds": each.multiply_adds,
                    "exact": each.settings.model_copy(update={"candidates": None}).exact,
                    "adds_noise": not rung.exact,
                    "translations": _translations(rung.exact, first=before is None),
                    "agreement": known.get(each.settings.model_copy(update={"candidates": None})),
                    "distinct_share": each.distinct_share,
                }
            )
    rows.sort(key=lambda row: [rung.key for rung in published.LADDER].index(row["rung"]))
    return rows


def _translations(exact: bool, *, first: bool) -> str:
    """Speeds are of all rungs so far; being exact is a rung's own, and takes away no noise of those before it."""
    return "adds noise" if not exact else "exact" if first else "exact over the rung before"


def _quartiles(ours: DecoderTime, theirs: DecoderTime) -> tuple[float, float]:
    ratios = ours.ratios(theirs)
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, high


def agreement(found: Reproduction) -> Rows:
    """One row a rung; empty without a trained model."""
    return [
        {
            "rung": each.key,
            "settings": each.settings.words(),
            "exact": each.settings.exact,
            "tokens": each.tokens,
            "tokens_same_share": each.share,
            "sentences": each.sentences,
            "sentences_same": each.sentences_same,
            "distinct_share": each.distinct_share,
            "bleu": each.bleu,
        }
        for each in found.agreements
    ]


def stages(speeds: SharpSpeeds) -> Rows:
    """Milliseconds a word by stage; empty without compiled kernels."""
    rows: Rows = []
    rungs = speeds.ladder["polynomial"]
    for each in (*rungs, *speeds.systems):
        if each.stage_s is not None:
            own = each.stage_s
            rows.append(
                {
                    "of": each.key,
                    "rung": each in rungs,
                    "settings": each.settings.words(),
                    "source_ms": 1e3 * statistics.median(each.source_s) / each.words,
                    "prepare_ms": 1e3 * own.prepare_s / each.words,
                    "body_ms": 1e3 * own.body_s / each.words,
                    "product_ms": 1e3 * own.product_s / each.words,
                    "search_ms": 1e3 * own.search_s / each.words,
                }
            )
    return rows


def systems(speeds: SharpSpeeds) -> Rows:
    """Table 2's own systems; factors are of S1's speed."""
    measured = {each.key: each for each in speeds.systems}
    first = measured.get("S1")
    rows: Rows = []
    for said in published.SYSTEMS:
        each = measured.get(said.key)
        known = each is not None and first is not None
        rows.append(
            {
                "key": said.key,
                "name": said.name,
                "bleu": said.bleu,
                "published_words_per_s": said.words_per_s,
                "published_factor": published.speed_over(said.key, "S1"),
                "words_per_s": None if each is None else each.words_per_s,
                "source_ms": None if each is None else 1e3 * statistics.median(each.source_s),
                "factor": each.over(first) if known else None,  # type: ignore[union-attr, arg-type]
                "predicted_factor": predicted_over(each, first) if known else None,  # type: ignore[arg-type]
                "multiply_adds": None if each is None else each.multiply_adds,
                "exact": None if each is None else each.settings.model_copy(update={"candidates": None}).exact,
            }
        )
    return rows


def context() -> Rows:
    """Others' systems."""
    return [{"name": each.name, "bleu": each.bleu, "remark": each.remark} for each in published.CONTEXT]


def products(speeds: SharpSpeeds) -> Rows:
    """Microseconds of one product, and ratios; the paper's curve is not in its text."""
    return [
        {
            "batch": each.batch,
            "cold": each.cold,
            **{f"{name}_us": 1e6 * each.median_s(name) for name in each.seconds},
            "library": each.best_library,
            "over_library": each.ratio("library"),
            "over_packed": each.ratio("float32"),
        }
        for each in speeds.products
    ]


def activations(speeds: SharpSpeeds) -> Rows:
    """Nanoseconds an element, mean of tanh and sigmoid."""
    return [{"way": way, "ns": 1e9 * seconds} for way, seconds in speeds.activation_s.items()]


def derived() -> Rows:
    """Figures that follow from printed ones."""
    return [{"what": each.what, "value": each.value, "meaning": each.meaning} for each in published.derived()]


def amdahl(speeds: SharpSpeeds) -> dict[str, Any]:
    """Of the 16-bit product alone: share of the baseline's time, its own gain, predicted and measured speed-up (XP-07)."""
    rungs = speeds.ladder["polynomial"]
    return {
        "share": product_share(speeds),
        "product_gain": product_gain(speeds),
        "predicted": predicted_int16(speeds),
        "measured": rungs[1].over(rungs[0]),
    }
