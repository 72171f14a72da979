"""Translation quality by sentence: files of scores, corpus chrF and BLEU from sums of statistics, and the join with a text.

A file of scores has a row per sentence and model with the statistics of sacrebleu's chrF and BLEU. They add up: the corpus
score of any requests, each translated by any of the models, follows exactly from their sums. `simnmt nmt score` writes files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION, random_streams
from simnmt.base.arrays import Floats
from simnmt.base.configuration import end_tokens
from simnmt.base.errors import describe_error, shorten
from simnmt.base.files import check_regular, written_whole
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload import CorpusError
from simnmt.workload.length_table import MAX_LENGTH, IntArray, LengthTable

# --- scores from sums of statistics ---

CHRF = tuple(f"chrf_{number}" for number in range(18))
"""For each character n-gram order from 1 to 6: n-grams of the output, of the reference, and of both."""
BLEU = tuple(f"bleu_{number}" for number in range(10))
"""Words of the output and of the reference, then matching n-grams and n-grams of the output, each by order from 1 to 4."""
STATISTICS = (*CHRF, *BLEU)
MATCHES = (
    *((CHRF[first + 2], CHRF[first + of]) for first in range(0, 18, 3) for of in range(2)),
    *((BLEU[2 + order], BLEU[6 + order]) for order in range(4)),
)
"""Each statistic of matches with one that it cannot exceed."""


def corpus_chrf(sums: Floats) -> Floats:
    """Return chrF of summed statistics, shape (..., 18), as sacrebleu's `CHRF()` computes it (doi:10.18653/v1/W15-3049)."""
    output, reference, both = (sums[..., first::3] for first in range(3))
    counted = (output > 0) & (reference > 0)
    orders = np.maximum(counted.sum(axis=-1), 1)
    precision = (np.where(counted, both, 0.0) / np.where(counted, output, 1.0)).sum(axis=-1) / orders
    recall = (np.where(counted, both, 0.0) / np.where(counted, reference, 1.0)).sum(axis=-1) / orders
    score: Floats = 100.0 * 5.0 * precision * recall / np.where(precision + recall > 0.0, 4.0 * precision + recall, 1.0)
    return score


def corpus_bleu(sums: Floats) -> Floats:
    """Return BLEU of summed statistics, shape (..., 10), as sacrebleu's `BLEU()` with its smoothing `exp` computes it."""
    output_len, reference_len, correct, total = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    known: NDArray[np.bool_] = np.asarray((total > 0).all(axis=-1) & (correct > 0).any(axis=-1))
    halvings = np.cumsum(correct == 0, axis=-1)  # an order without a match counts as half a match, the next one as a quarter
    matches = np.where(correct > 0, correct, 0.5**halvings)
    precision = np.where(known[..., None], matches / np.where(total > 0, total, 1.0), 1.0)
    brevity = np.minimum(1.0 - reference_len / np.where(output_len > 0, output_len, 1.0), 0.0)
    score: Floats = np.where(known, 100.0 * np.exp(brevity + np.log(precision).mean(axis=-1)), 0.0)
    return score


SCORES: Mapping[str, Callable[[Floats], Floats]] = {
    "chrf": lambda sums: corpus_chrf(sums[..., : len(CHRF)]),
    "bleu": lambda sums: corpus_bleu(sums[..., len(CHRF) :]),
}
"""The scores, each of summed `STATISTICS`, shape (..., 28)."""

# --- intervals ---

RESAMPLES = 1_000
TAILS = (0.025, 0.975)
"""Quantiles of the resampled scores that are the ends of a 95 % interval."""
SENTENCES_AT_A_TIME = 1_024


def resampling_weights(sentences: int, seed: int, name: str) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of sentences and their weights, shape (1 + RESAMPLES, sentences of the block).

    The first row is 1, the sample itself. The others are those of the Bayesian bootstrap (Rubin 1981): exponential numbers,
    which have the mean and the variance of the counts of resampling with replacement, and can be drawn block by block. All that
    is summed with the same seed and name meets the same weights, so that differences are paired.
    """
    for block, first in enumerate(range(0, sentences, SENTENCES_AT_A_TIME)):
        rows = slice(first, min(first + SENTENCES_AT_A_TIME, sentences))
        generator = random_streams.stream(seed, 0, f"resamples of {name}", block)
        weights = np.ones((1 + RESAMPLES, rows.stop - rows.start))
        generator.standard_exponential(out=weights[1:])
        yield rows, weights


class Resamples:
    """Sums of the statistics of some samples and of their resamples, and the corpus scores with their intervals.

    All samples are of the same sentences: one matrix product for all takes a quarter of the time.
    """

    def __init__(self, samples: int = 1) -> None:
        self._sums = np.zeros((1 + RESAMPLES, samples, len(STATISTICS)))
        self._squares = np.zeros(samples)

    def add(self, weights: Floats, statistics: Floats) -> None:
        """Add a block of sentences by the weights of `resampling_weights`.

        `statistics`: of all requests of each sentence, shape (sentences, samples, 28).
        """
        self._sums += (weights @ statistics.reshape(len(statistics), -1)).reshape(self._sums.shape)
        self._squares += (statistics[..., 1] ** 2).sum(axis=0)

    def estimates(self) -> list[dict[str, tuple[float, float, float]]]:
        """Return value, low and high of each score of each sample: 95 % intervals over samples of as many sentences.

        Quantiles of resamples are too near where a sample has the content of few sentences of equal length and use. They are
        moved away by Student's quantile over that of the normal distribution, with the freedom of so many, and by the bias of
        a standard deviation.
        """
        from scipy.special import ndtri, stdtrit  # scipy.stats would add half a second to the start

        content = self._sums[0, :, 1]  # characters of the references
        alike = np.maximum(content**2 / np.where(content > 0.0, self._squares, 1.0), 2.0)
        reach = stdtrit(alike - 1.0, TAILS[1]) / ndtri(TAILS[1]) * np.sqrt(alike / (alike - 1.0))
        scores: list[dict[str, tuple[float, float, float]]] = [{} for _ in content]
        for name, score in SCORES.items():
            values = score(self._sums)
            ends = np.clip(values[0] + reach * (np.quantile(values[1:], TAILS, axis=0) - values[0]), 0.0, 100.0)
            for sample, value, low, high in zip(scores, values[0].tolist(), *ends.tolist(), strict=True):
                sample[name] = value, low, high
        return scores


def text_estimates(statistics: NDArray[np.int32], seed: int = 1, name: str = "") -> dict[str, tuple[float, float, float]]:
    """Return value, low and high of each score of a text; `statistics`: shape (sentences, 28)."""
    resamples = Resamples()
    for rows, weights in resampling_weights(len(statistics), seed, name):
        resamples.add(weights, statistics[rows, None].astype(np.float64))
    return resamples.estimates()[0]


# --- files of scores ---

VERSION_OF_FORMAT = 1
_METADATA = b"simnmt_scores"
FEATURES = ("src_chars", "src_words", "output_len", "logprob")
"""What a decision may use beside the text: length of the source; tokens of the output, and the sum of their natural
log-probabilities, NaN if it is unknown."""
_REMEDY = "write it with `simnmt nmt score`"


def text_hash(text: str) -> str:
    """Return the name of a line in files of scores: 16 hexadecimal digits of the SHA-256 of the line without outer blanks."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def write_scores(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]], facts: Mapping[str, str]) -> None:
    """Write a file of scores, whole or not at all; `facts`: signatures and names that the file states."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stated = json.dumps({"version": VERSION_OF_FORMAT, "simnmt": VERSION, **facts})
    table = pa.table(dict(columns)).replace_schema_metadata({_METADATA: stated})
    # Opened here, since pyarrow would take no name that is not UTF-8.
    with written_whole(path) as partial, partial.open("wb") as file:
        pq.write_table(table, file, compression="zstd")


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of one model, a row per sentence."""

    path: Path
    model: str
    signatures: Mapping[str, str]
    """Of chrf and bleu: how sacrebleu computed the statistics."""
    sentence: IntArray
    """Number of each sentence in the text that was scored, from 0."""
    source_hash: list[str]
    reference_hash: list[str]
    statistics: NDArray[np.int32]
    """By the names of `STATISTICS`, shape (sentences, 28)."""
    features: dict[str, Floats]
    """By the names of `FEATURES`."""


def read_scores(path: Path, model: str | None = None) -> Scores:
    """Return the scores of a model in a file, by default of its only one.

    Raises `CorpusError` for another file, an unknown model, a sentence with two rows, and statistics or lengths that are no
    counts.
    """
    table, facts = _read_table(path)
    names = table["model"].to_numpy()
    models = list(dict.fromkeys(names.tolist()))
    if model is None and len(models) != 1:
        what = f"scores of {len(models)} models: {format_list(models[:10], 'and')}"
        raise CorpusError(what, path=path, remedy="name one: {scores: FILE, model: NAME}")
    if model is not None and model not in models:
        raise CorpusError(f"no scores of a model {shorten(model)!r}", path=path, remedy=did_you_mean(model, models))
    model = models[0] if model is None else model
    rows = np.flatnonzero(names == model)
    try:
        read = {name: table[name].to_numpy()[rows].astype(np.float64) for name in ("sentence", *STATISTICS, *FEATURES)}
    except (TypeError, ValueError) as error:
        raise CorpusError(f"a column of numbers holds others: {describe_error(error)}", path=path, remedy=_REMEDY) from None
    counted = [name for name in read if name != "logprob"]
    counts = np.column_stack([read[name] for name in counted])
    fault = ~((counts >= 0) & (counts < 2**31) & (counts == np.floor(counts)))
    for matches, of in MATCHES:
        fault[:, counted.index(matches)] |= read[matches] > read[of]
    sentence = read["sentence"]
    if fault.any():
        row, column = np.argwhere(fault)[0]
        what = f"{counted[column]} of {model} in sentence {sentence[row] + 1:.0f} is {counts[row, column]:g}, no count"
        raise CorpusError(what, path=path, remedy=_REMEDY)
    numbers, times = np.unique(sentence, return_counts=True)
    if (times > 1).any():
        what = f"sentence {numbers[times.argmax()] + 1:.0f} of {model} has {times.max()} rows"
        raise CorpusError(what, path=path, remedy="leave one row per sentence and model")
    source_hash, reference_hash = (table[name].to_numpy()[rows].tolist() for name in ("source_hash", "reference_hash"))
    signatures = {name: str(facts[name]) for name in SCORES}
    features = {name: read[name] for name in FEATURES}
    statistics = np.column_stack([read[name] for name in STATISTICS]).astype(np.int32)
    return Scores(path, model, signatures, sentence.astype(np.int64), source_hash, reference_hash, statistics, features)


def _read_table(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the Arrow table of a file of scores, and the facts that it states. Raises `CorpusError`."""
    import pyarrow.parquet as pq

    needed = {"sentence", "model", "source_hash", "reference_hash", *STATISTICS, *FEATURES}
    try:
        check_regular(path, 1 << 34)
        with path.open("rb") as file:
            # With its threads, 6 of 20 processes that ended with an error on a busy box were aborted.
            table = pq.read_table(file, use_threads=False, pre_buffer=False)
        facts = json.loads((table.schema.metadata or {}).get(_METADATA, b"{}"))
    except FileNotFoundError:
        raise CorpusError("no such file", path=path, remedy="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or describe_error(error)
        raise CorpusError(f"no file of scores: {shorten(reason)}", path=path, remedy=_REMEDY) from None
    if facts.get("version") != VERSION_OF_FORMAT or not {*SCORES} <= facts.keys() or not table.num_rows:
        raise CorpusError("no file of scores of this version", path=path, remedy=_REMEDY)
    if lacking := sorted(needed.difference(table.schema.names)):
        raise CorpusError(f"no column {lacking[0]}", path=path, remedy=_REMEDY)
    if table["model"].null_count:
        raise CorpusError("a row names no model", path=path, remedy=_REMEDY)
    return table, facts


# --- the sentences of a workload ---


class Sentences(NamedTuple):
    """The sentences of a text, in its order."""

    src_len: IntArray
    """Tokens, without the end of the sentence."""
    tgt_len: IntArray
    source: list[str]
    source_hash: list[str]
    reference_hash: list[str]

    def converted(self, table: LengthTable, src: float, tgt: float) -> Sentences:
        """Return the sentences with lengths in other units, as `LengthTable.with_fertility` converts those of their text.

        Of the sentences of a pair of lengths, the first ones in the text get the greater lengths. Those that the filter drops
        have lengths of 0.
        """
        kept = _rows_of(self.src_len, self.tgt_len, table)
        order = np.argsort(kept, kind="stable")[np.count_nonzero(kept < 0) :]
        *lengths, count, row = table.converted_rows(src, tgt)
        parts, changed = np.argsort(row, kind="stable"), np.zeros((2, len(kept)), np.int64)
        for side, length in enumerate(lengths):
            changed[side, order] = np.repeat(length[parts], count[parts])
        return self._replace(src_len=changed[0], tgt_len=changed[1])


def read_sentences(
    pairs: Iterable[tuple[str, str]], count_src: Callable[[str], int], count_tgt: Callable[[str], int]
) -> Sentences:
    """Return the sentences of a text from its pairs of lines."""
    rows = [(count_src(src), count_tgt(tgt), src, text_hash(src), text_hash(tgt)) for src, tgt in pairs]
    src_len, tgt_len, *texts = map(list, zip(*rows, strict=True)) if rows else ([],) * 5
    return Sentences(np.array(src_len, np.int64), np.array(tgt_len, np.int64), *texts)


Translated = Sequence[tuple[IntArray, IntArray]]
"""Of each device, the sentences that it translated, ascending, and how often."""


@dataclass(frozen=True, eq=False)
class ScoredText:
    """The sentences of a workload's text with their scores by device; rows are those of the text."""

    digest: str
    """Names the text: equal texts have the same."""
    source: list[str]
    """The lines of the source, for live replays; empty in other processes."""
    pair: IntArray
    """Row of each sentence's pair of lengths in the workload's table; -1 for sentences that the filter drops."""
    scores: tuple[Scores, ...]
    """By device, in the order of the scenario, without rows but for the features of the first one."""
    rows: tuple[IntArray, ...]
    """Of the first device, the row of each sentence in the scores; -1 for sentences that the filter drops."""
    statistics: tuple[NDArray[np.int32], ...]
    """By device, shape (sentences, 28); 0 for sentences that the filter drops."""

    def __len__(self) -> int:
        return len(self.pair)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"source": []}  # each unit of a run carries the text to its process

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Names the text with its scores: equal ones have the same key, in any process."""
        return self.digest, *(f"{one.path} {one.model}" for one in self.scores)

    def evaluated(self, table: LengthTable, pairs: LengthTable, seed: int, replication: int) -> NDArray[np.int32]:
        """Return the sentences of the pairs from which requests are drawn, in the order of the pairs.

        The pairs were drawn from the counts of `table`, the whole one, as `LengthTable.split` does. Which sentences of a pair
        of lengths they are is drawn at random; the others are those of the pairs for fitting.
        """
        keys = random_streams.uniform(seed, replication, f"split of {self.digest}", len(self.pair))
        order = np.lexsort((keys, self.pair))[np.count_nonzero(self.pair < 0) :]
        begins = np.cumsum(table.count) - table.count
        rank = np.arange(len(order)) - np.repeat(begins, table.count)
        left = np.zeros(len(table.count), np.int64)
        left[np.searchsorted(_codes(table.src_len, table.tgt_len), _codes(pairs.src_len, pairs.tgt_len))] = pairs.count
        return order[rank < np.repeat(left, table.count)].astype(np.int32)

    def sums(self, runs: Iterable[Translated], rows: slice) -> Floats:
        """Return the statistics of a block of sentences, each times how often each device translated it in some runs.

        Shape (sentences, 28).
        """
        total = np.zeros((rows.stop - rows.start, len(STATISTICS)))
        for translated in runs:
            for (sentence, times), statistics in zip(translated, self.statistics, strict=True):
                first, last = np.searchsorted(sentence, (rows.start, rows.stop)).tolist()
                block = slice(first, last)
                total[sentence[block] - rows.start] += times[block, None] * statistics[sentence[block]]
        return total


def _rows_of(src_len: IntArray, tgt_len: IntArray, table: LengthTable) -> IntArray:
    """Return the row of each pair of lengths in a table; -1 for those that it lacks."""
    codes, known = _codes(src_len, tgt_len), _codes(table.src_len, table.tgt_len)
    rows = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[rows] == codes, rows, -1)


def _codes(src_len: IntArray, tgt_len: IntArray) -> IntArray:
    """Return a number for each pair of lengths, in the order of the pairs."""
    return src_len * (MAX_LENGTH + 2) + tgt_len


def join_scores(sentences: Sentences, table: LengthTable, scores: Sequence[Scores]) -> ScoredText:
    """Join the sentences of a text with the scores of each device, by the hashes of source and reference.

    `table`: the workload's lengths, counted on this text, which the sentences have too but for the ends of sentences. Raises
    `CorpusError` for scores that lack a sentence, and for scores that were not computed alike.
    """
    more_src, more_tgt = end_tokens(table.end_of_sentence)
    pair = _rows_of(sentences.src_len + more_src, sentences.tgt_len + more_tgt, table)
    kept = pair >= 0
    assert np.array_equal(np.bincount(pair[kept], minlength=len(table.count)), table.count), "the table is of these sentences"
    keys = list(zip(sentences.source_hash, sentences.reference_hash, strict=True))
    rows = []
    for one in scores:
        for name, signature in one.signatures.items():
            if signature != scores[0].signatures[name]:
                what = f"its {name} is {signature}, but {scores[0].path} has {scores[0].signatures[name]}"
                raise CorpusError(what, path=one.path, remedy="score all models with the same options")
        row_of = dict(zip(zip(one.source_hash, one.reference_hash, strict=True), range(len(one.sentence)), strict=True))
        row = np.array([row_of.get(key, -1) for key in keys], np.int64)
        lacking = np.flatnonzero(kept & (row < 0))
        if lacking.size:
            first = int(lacking[0])
            what = (
                f"no score of {one.model} for {lacking.size:,} of {kept.sum():,} sentences, the first is sentence {first + 1}"
            )
            if sentences.source_hash[first] in one.source_hash:
                what += ", which was scored with another reference"
            raise CorpusError(what, path=one.path, remedy="score the text of the workload")
        rows.append(np.where(kept, row, -1))
    digest = hashlib.sha256("".join(map("".join, keys)).encode()).hexdigest()[:16]
    statistics = (np.where(kept[:, None], one.statistics[row], 0) for one, row in zip(scores, rows, strict=True))
    no_rows: dict[str, Any] = {"sentence": pair[:0], "source_hash": [], "reference_hash": []}
    no_rows["statistics"] = scores[0].statistics[:0]
    known = (replace(one, **no_rows, features={} if number else one.features) for number, one in enumerate(scores))
    return ScoredText(digest, sentences.source, pair, tuple(known), (rows[0],), tuple(statistics))
