"""The whole reproduction of the sharp decoder: what is timed on this box, verdicts, tables and text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base.errors import InputError
from simnmt.papers.kit.claim import format_claims, format_columns
from simnmt.papers.sharp import published
from simnmt.papers.sharp.claims import all_claims
from simnmt.papers.sharp.prediction import predicted_int16, predicted_ladder, predicted_over, product_gain, product_share

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, SharpSpeeds

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what comes next."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements, and what this box says of them."""

    speeds: SharpSpeeds
    quick: bool
    claims: list[dict[str, Any]]
    agreements: list[RungAgreement] = field(default_factory=list)
    """Of each rung on a trained model; empty where none was given."""

    @property
    def warnings(self) -> list[str]:
        """What a reader should know of the trained model: weights that the 16-bit products clip."""
        messages = [rung.clipping.warning() for rung in self.agreements if rung.clipping is not None]
        return list(dict.fromkeys(filter(None, messages)))


def reproduce(
    *,
    quick: bool = False,
    rounds: int | None = None,
    model: str | None = None,
    text: Path | None = None,
    references: Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the ladder, the stacks and the ensembles of the paper on one thread of this box.

    `quick`: a smaller vocabulary, fewer rounds, systems and batches; `rounds`: others than usual; `model` and `text`: a folder
    with a trained attentional model and sentences to translate, to see what each rung changes; `references`: a translation of
    each, for BLEU.
    Raises `InputError` for one of the first two without the other, and for the last without them.
    """
    if (model is None) != (text is None):
        raise InputError("a trained model and a text go together", remedy="give both --model and --text, or neither")
    if references is not None and text is None:
        raise InputError("--references without a text", remedy="give --model and --text as well")
    # Here, so that the published tables need no torch.
    from simnmt.calibrate.sharp_speeds import QUICK, Setting, sharp_speeds

    setting = QUICK if quick else Setting()
    if rounds is not None:
        setting = replace(setting, rounds=rounds)
    agreements = [] if model is None or text is None else _agreements(model, text, references, setting.beam, progress)
    found = sharp_speeds(setting, progress)
    return Reproduction(found, quick, all_claims(found, agreements, quick=quick), agreements)


def _agreements(model: str, text: Path, references: Path | None, beam: int, progress: Progress | None) -> list[RungAgreement]:
    from simnmt.calibrate.sharp_agreement import sharp_agreement

    return sharp_agreement(model, text, beam, progress=progress, references=references)


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


def as_text(found: Reproduction) -> str:
    """Table 1, Table 2, figure 1, and a line per claim."""
    speeds = found.speeds
    own = amdahl(speeds)
    told = f"Products have {100 * own['share']:.0f} % of the baseline's time: with 16 bits Amdahl's prediction is "
    told += "none, as alone they ran slower than in the decoder" if own["predicted"] is None else f"{own['predicted']:.2f}"
    told += f", measured {own['measured']:.2f}"
    return "\n\n".join(
        [
            _ladder(ladder(speeds, found.agreements)),
            told,
            _systems(systems(speeds)),
            _products(products(speeds)),
            format_claims(found.claims),
        ]
    )


def _ladder(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['name']}{'' if row['activations'] == 'library' else ', ' + row['activations']}",
            f"{row['published_words_per_s']}",
            f"{row['published_factor']:.3f}",
            f"{row['words_per_s']:.1f}",
            f"{row['factor']:.3f}",
            "" if row["step"] is None else f"{row['step']:.3f}",
            f"{row['decoder_factor']:.3f}",
            f"{row['source_ms']:.2f}",
            f"{row['predicted_factor']:.2f}",
            "" if row["agreement"] is None else f"{100 * row['agreement']:.2f} %",
            row["translations"],
        )
        for row in rows
    ]
    head = (
        "Table 1",
        "published words/s",
        "published factor",
        "words/s",
        "factor",
        "step",
        "decoder alone, factor",
        "source ms",
        "predicted factor",
        "same words so far",
        "translations",
    )
    return "Words a second, source side included, one thread\n" + format_columns(head, lines)


def _systems(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['key']} {row['name']}",
            f"{row['bleu']}",
            f"{row['published_words_per_s']}",
            f"{row['published_factor']:.2f}",
            *(
                _shown(row[name], form)
                for name, form in (("words_per_s", ".1f"), ("factor", ".2f"), ("predicted_factor", ".2f"))
            ),
        )
        for row in rows
    ]
    head = ("Table 2", "BLEU", "published words/s", "published over S1", "words/s", "over S1", "over S1 by multiply-adds")
    return "Systems of the paper; BLEU as published\n" + format_columns(head, lines)


def _products(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"batch {row['batch']}, weights {'from memory' if row['cold'] else 'in the cache'}",
            *(f"{row[name + '_us']:,.0f}" for name in ("int16", "float32", "torch", "numpy")),
            f"{row['over_library']:.2f}",
            f"{row['over_packed']:.2f}",
        )
        for row in rows
    ]
    head = ("Figure 1", "int16", "float32", "torch", "numpy", "over library", "over packed")
    return "Products with 1024 x 1024 weights, microseconds\n" + format_columns(head, lines)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
