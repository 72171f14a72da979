"""Read text and decode it with all of the vocabulary and with a part of it: quality, active shares, speed (FVP-08, FVP-16).

The harness times the text stretch by stretch, a fraction of a second in which the methods take turns, so that a disturbance
of the box costs a stretch and not a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from simnmt.base.errors import InputError
from simnmt.batching import mini
from simnmt.calibrate.harness import Case, counted, matrix_reference, nothing, rounds
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.agreement import agreement
from simnmt.nmt.decoder import BatchedRun
from simnmt.nmt.decoder import decode as decode_sentences
from simnmt.nmt.errors import need
from simnmt.nmt.output_layer import Laps, Output
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import SubsetAccount
from simnmt.papers.fvp.study import Decoded, StudiedText
from simnmt.results.run_directory import sha256
from simnmt.workload.text_lines import TextLines

WARMING = 20
"""Sentences decoded with each method before timing starts."""
LEAST_STRETCH = 10
"""Sentences of a stretch at least, less than half a second of a small decoder: shared cores change their speed after that."""
PLAIN = Output()
"""All of the vocabulary: projection, softmax and search one after the other."""
LEAST_CALM = 2 / 3
"""Share of the stretches of all rounds that must be undisturbed for times to decide anything."""
Pair = tuple[str, str | None]
"""A sentence, and its translation if there are references."""


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line."""

    label: str
    train: Path
    """Sources that clusters are made of."""
    heldout: Path
    """Other sources."""
    references: Path | None = None
    """Translations of `heldout`, for BLEU."""

    def studied(self) -> list[StudiedText]:
        files = {"train": self.train, "heldout": self.heldout, "references": self.references}
        named = [(role, path, len(_lines(path))) for role, path in files.items() if path is not None]
        return [
            StudiedText(label=self.label, role=role, name=path.name, sha256=sha256(path), lines=lines)  # type: ignore[arg-type]
            for role, path, lines in named
        ]

    def training_sources(self, most: int) -> list[str]:
        return [line for line in _lines(self.train) if line.strip()][:most]

    def held_out(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return at most `most` sentences of each half of the held-out text, without empty ones.

        The second half chooses r and K, and the first half is decoded with them: the reported figures of the chosen cell come
        from other sentences than those that chose it. Raises `CalibrationError` for fewer than two sentences, and for
        references of another length.
        """
        lines = _lines(self.heldout)
        references: Sequence[str | None] = [None] * len(lines) if self.references is None else _lines(self.references)
        if len(references) != len(lines):
            remedy = "give one translation a line, in the order of the text"
            raise CalibrationError(f"not as many lines as {self.heldout}", path=self.references, remedy=remedy)
        kept = [pair for pair in zip(lines, references, strict=True) if all(text is None or text.strip() for text in pair)]
        if len(kept) < 2:
            raise CalibrationError("fewer than two sentences", path=self.heldout, remedy="give a text, one sentence a line")
        half = (len(kept) + 1) // 2
        return kept[:half][:most], kept[half:][:most]


def directions_of(texts: Iterable[str]) -> list[Direction]:
    """Return the directions of texts given as LABEL=TRAIN,HELDOUT[,REFERENCES].

    Raises `InputError` for another form and for a label given twice.
    """
    directions: dict[str, Direction] = {}
    for text in texts:
        label, _, files = text.partition("=")
        paths = [Path(file) for file in files.split(",") if file]
        if not label or label in directions or len(paths) not in (2, 3):
            what = f"--text {text}: no LABEL=TRAIN,HELDOUT[,REFERENCES], or of a label given twice"
            raise InputError(what, remedy="name the direction and its files: --text fr-en=train.fr,heldout.fr,heldout.en")
        directions[label] = Direction(label, *paths)
    return list(directions.values())


def _lines(path: Path) -> list[str]:
    return list(TextLines(path, kept=True, pipes=False))


Sentence = tuple[Sequence[int], str | None]
"""The tokens of a source as the model reads it, and its translation if there are references."""


def encode(translator: Translator, pairs: Iterable[Pair]) -> list[Sentence]:
    """Return the sentences as the model reads them, without those of no token."""
    sources, references = zip(*pairs, strict=True)
    return [(ids, reference) for ids, reference in zip(translator.encode(sources), references, strict=True) if ids]


def decode(translator: Translator, sentences: Sequence[Sentence], beam: int, batch: int, output: Output = PLAIN) -> BatchedRun:
    sources = [source for source, _ in sentences]
    most = [2 * len(source) + 10 for source in sources]
    return decode_sentences(translator.model, sources, mini(batch), search=Search(beam), output=output, max_len=most)


def bleu_of(translator: Translator, sentences: Sequence[Sentence], hypotheses: Iterable[Hypothesis]) -> float | None:
    """Return the BLEU of translations; None without references. Raises `NmtError` without sacrebleu."""
    references = [reference for _, reference in sentences]
    if references[0] is None:
        return None
    texts = translator.target.decode([list(hypothesis.tokens) for hypothesis in hypotheses])
    return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [references]).score)


class Timed(NamedTuple):
    """A text decoded in rounds by several methods, in turn, stretch by stretch."""

    by_round: pd.DataFrame
    """By round, over the stretches that count; columns are pairs of a value and a method (one is `dense`): `tokens_per_s`, end
    tokens included, `layer_s` and `body_s` (of a step), `layer_share` (of the time), `tokens`."""
    hypotheses: Mapping[str, list[Hypothesis]]
    """By method, of the whole text."""
    conclusive: bool
    """Enough stretches were undisturbed in all methods; else all of them count."""

    def ratios(self, value: str, above: str, below: str) -> tuple[float, ...]:
        return tuple((self.by_round[value, above] / self.by_round[value, below]).tolist())

    def beside_dense(self, method: str) -> dict[str, Any]:
        """Return the fields of `Speed` that compare a method with dense decoding; ties and rounding differ too."""
        pairs = zip(self.hypotheses["dense"], self.hypotheses[method], strict=True)
        same, gains = [dense.tokens == other.tokens for dense, other in pairs], self.ratios("tokens_per_s", method, "dense")
        return {"sentences": len(same), "identical": float(np.mean(same)), "conclusive": self.conclusive, "gains": gains}


def time_methods(
    translator: Translator,
    sentences: Sequence[Sentence],
    beam: int,
    batch: int,
    methods: Mapping[str, Output],
    count: int,
    stretch: int = LEAST_STRETCH,
) -> Timed:
    """Decode a text in `count` rounds, each stretch of it by all methods in turn, beside reference work.

    A stretch has `stretch` sentences at least: whole batches, so that they are those of the whole text.
    """
    size = batch * ceil(stretch / batch)
    pieces = [sentences[begin : begin + size] for begin in range(0, len(sentences), size)]
    written: dict[tuple[int, str], Sequence[Hypothesis]] = {}

    def run(place: int, name: str) -> dict[str, float]:
        laps = Laps()
        done = decode(translator, pieces[place], beam, batch, replace(methods[name], lap=laps))
        written[place, name] = done.hypotheses
        seconds = laps.seconds
        layer_s = sum(seconds[part] for part in ("project", "softmax", "search", "fused_product", "fused"))
        tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in done.hypotheses)
        numbers = {"total_s": done.total_s, "body_s": seconds["body"], "layer_s": layer_s}
        return numbers | {"steps": len(done.active), "tokens": tokens}

    for output in methods.values():
        decode(translator, sentences[:WARMING], beam, batch, output)
    cases = {
        (place, name): Case(partial(run, place, name), prepare=nothing, about={"piece": place, "method": name})
        for place in range(len(pieces))
        for name in methods
    }
    rows = counted(rounds(cases, count, reference=matrix_reference(), name="stretches"), every=True)
    disturbed = rows.groupby(["round", "piece"])["disturbed"].transform("any")
    calm = 1.0 - float(disturbed.mean()) >= LEAST_CALM
    sums = (rows[~disturbed] if calm else rows).pivot_table(
        index="round", columns="method", values=["total_s", "body_s", "layer_s", "steps", "tokens"], aggfunc="sum"
    )
    values = {
        "tokens_per_s": sums["tokens"] / sums["total_s"],
        "layer_s": sums["layer_s"] / sums["steps"],
        "body_s": sums["body_s"] / sums["steps"],
        "layer_share": sums["layer_s"] / sums["total_s"],
        "tokens": sums["tokens"],
    }
    hypotheses = {name: list(chain.from_iterable(written[place, name] for place in range(len(pieces)))) for name in methods}
    return Timed(pd.concat(values, axis=1), hypotheses, calm)


def timed_decoding(
    translator: Translator, sentences: Sequence[Sentence], beam: int, batch: int, part: Output, count: int, **settings: Any
) -> Decoded:
    """Decode a text with one search, by all methods in turn; `settings`: further fields of the result."""
    methods = {"dense": PLAIN, "fused": Output(fused=True), "part": part}
    timed = time_methods(translator, sentences, beam, batch, methods, count)
    assert part.vocabulary is not None
    account, sources = SubsetAccount(), [source for source, _ in sentences]
    audit = replace(part, vocabulary=replace(part.vocabulary, audit=True, account=account))
    audited = decode(translator, sentences, beam, batch, audit)
    dense, most = timed.hypotheses["dense"], [2 * len(source) + 10 for source in sources]
    compared = agreement(translator.model, sources, dense, audited.hypotheses, beam=beam, max_len=most)
    medians = timed.by_round.median()
    return Decoded(
        beam=beam,
        batch=batch,
        token_agreement=compared.equal_tokens,
        bleu=bleu_of(translator, sentences, dense),
        bleu_part=bleu_of(translator, sentences, timed.hypotheses["part"]),
        tokens_per_s=medians["tokens_per_s", "dense"],
        tokens_per_s_fused=medians["tokens_per_s", "fused"],
        tokens_per_s_part=medians["tokens_per_s", "part"],
        layer_share=medians["layer_share", "dense"],
        layer_us=1e6 * medians["layer_s", "part"],
        body_ratio=medians["body_s", "dense"] / medians["body_s", "part"],
        near_ties=len(compared.near_ties),
        miss_rate=account.miss_rate,
        share_mean=float(account.share.mean()),
        share_most=float(account.share.max()),
        gains_over_fused=timed.ratios("tokens_per_s", "part", "fused"),
        layer_ratios=timed.ratios("layer_s", "dense", "part"),
        layer_ratios_over_fused=timed.ratios("layer_s", "fused", "part"),
        **timed.beside_dense("part"),
        **settings,
    )
