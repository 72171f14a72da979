"""Scores by sentence: corpus scores of any subset, intervals, files of scores, and the join with a text."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.nmt.scoring import Output, load_metrics, score_outputs
from simnmt.workload import CorpusError
from simnmt.workload.configuration import TextFiles
from simnmt.workload.length_table import LengthTable
from simnmt.workload.quality import (
    SCORES,
    STATISTICS,
    ScoredText,
    join_scores,
    read_scores,
    resampling_weights,
    text_estimates,
    write_scores,
)
from tests.workload.scored_text import Text, drawn_statistics, made_text

WORDS = st.sampled_from(["a", "cat", "sees", "the", "house,", "it's", "1.5", "日本", "été", "."])
LINES = st.lists(WORDS, max_size=8).map(" ".join)


def statistics_of(outputs: list[str], references: list[str]) -> np.ndarray:
    output = Output("system", outputs, [0] * len(outputs), [0.0] * len(outputs))
    columns, _ = score_outputs(references, references, [output], load_metrics())
    return np.column_stack([columns[name] for name in STATISTICS])


@given(st.lists(st.tuples(LINES, LINES, st.integers(0, 3)), min_size=1, max_size=12))
def test_sums_of_any_sentences_give_the_corpus_scores_of_sacrebleu(lines: list[tuple[str, str, int]]) -> None:
    outputs, references = [one for one, _, _ in lines], [one for _, one, _ in lines]
    times = [count for _, _, count in lines] if any(count for _, _, count in lines) else [1] * len(lines)
    sums = np.array(times) @ statistics_of(outputs, references)
    repeated = [index for index, count in enumerate(times) for _ in range(count)]
    for name, metric in load_metrics().items():
        expected = metric.corpus_score([outputs[row] for row in repeated], [[references[row] for row in repeated]]).score
        assert float(SCORES[name](sums.astype(float))) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_subsets_of_a_text_that_two_systems_translate_have_the_scores_of_sacrebleu() -> None:
    text, draw = made_text(300), np.random.default_rng(5)
    statistics = [statistics_of(text.outputs[system], text.references) for system in ("small", "big")]
    for size in (1, 7, 100, 300):
        rows, system = draw.permutation(300)[:size], draw.integers(0, 2, size)
        sums = sum(statistics[which][row] for which, row in zip(system, rows, strict=True)).astype(float)
        outputs = [[*text.outputs.values()][which][row] for which, row in zip(system, rows, strict=True)]
        for name, metric in load_metrics().items():
            expected = metric.corpus_score(outputs, [[text.references[row] for row in rows]]).score
            assert float(SCORES[name](sums)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("sentences", "requests"), [(100, 100), (300, 150), (300, 6_000)])
def test_intervals_cover_the_score_of_all_texts(sentences: int, requests: int) -> None:
    """Texts drawn from many sentences, and requests drawn from each: fewer than sentences, as many, and many more."""
    draw, trials = np.random.default_rng(sentences + requests), 500
    population = drawn_statistics(100_000, draw)
    truth = {name: float(score(population.sum(axis=0).astype(float))) for name, score in SCORES.items()}
    covered = dict.fromkeys(SCORES, 0)
    for trial in range(trials):
        text = population[draw.integers(0, len(population), sentences)]
        counts = np.bincount(draw.integers(0, sentences, requests), minlength=sentences).astype(np.int32)
        for name, (value, low, high) in text_estimates(counts[:, None] * text, trial).items():
            assert low < value < high
            covered[name] += low <= truth[name] <= high
    shares = {name: count / trials for name, count in covered.items()}
    assert all(0.92 <= share <= 0.98 for share in shares.values()), shares


def joined(text: Text, folder: Path, *systems: str, **keys: Any) -> tuple[ScoredText, LengthTable]:
    lengths = TextFiles.model_validate(text.write(folder) | keys)
    table = lengths.load(Path())
    scores = [read_scores(folder / f"{system}.parquet") for system in systems]
    return join_scores(lengths.sentences(Path()), table, scores), table


def test_sentences_are_joined_by_their_text_whatever_the_order_of_the_scores(tmp_path: Path) -> None:
    text = made_text(120)
    scored, table = joined(text, tmp_path, "big")
    whole = pq.read_table(tmp_path / "big.parquet")
    pq.write_table(whole.take(np.random.default_rng(1).permutation(120)), tmp_path / "mixed.parquet")
    mixed, _ = joined(text, tmp_path, "mixed")
    np.testing.assert_array_equal(mixed.statistics[0], scored.statistics[0])
    assert len(scored) == 120 and (scored.pair >= 0).sum() == table.pairs
    expected = statistics_of(text.outputs["big"], text.references)
    np.testing.assert_array_equal(scored.statistics[0][scored.pair >= 0], expected[scored.pair >= 0])


def test_the_sentences_of_a_split_have_the_lengths_of_their_pairs_and_the_others_are_left(tmp_path: Path) -> None:
    text = made_text(400)
    for end in ("none", "both"):
        lengths = TextFiles.model_validate(text.write(tmp_path))
        table = lengths.load(Path()).counting(end)  # type: ignore[arg-type]
        scored = join_scores(lengths.sentences(Path()), table, [read_scores(tmp_path / "small.parquet")])
        seen = []
        for replication in range(2):
            fit, evaluated = table.split(0.1, 3, replication)
            rows = scored.evaluated(table, evaluated, 3, replication)
            assert len(set(rows)) == len(rows) == evaluated.pairs == table.pairs - fit.pairs
            src_len, tgt_len = evaluated.at_quantiles((np.arange(len(rows)) + 0.5) / len(rows))
            more = 0 if end == "none" else 1
            np.testing.assert_array_equal([len(text.sources[row].split()) + more for row in rows], src_len)
            np.testing.assert_array_equal([len(text.references[row].split()) + more for row in rows], tgt_len)
            seen.append(set(rows.tolist()))
        assert seen[0] != seen[1]


def changed(path: Path, column: str | None = None, row: int = 0, value: Any = None, **facts: Any) -> None:
    """Change a value of a file of scores, or what it states."""
    table = pq.read_table(path)
    columns = {name: table[name].to_pylist() for name in table.schema.names}
    if column is not None:
        columns[column] = [value if at == row else one for at, one in enumerate(columns[column])]
    metadata = {key: value for key, value in table.schema.metadata.items() if not facts}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)


BAD_FILES = {
    "no such file": lambda path: path.unlink(),
    "no file of scores: ": lambda path: path.write_text("not a table"),
    "no file of scores of this version": lambda path: changed(path, version=2),
    "no column chrf_17": lambda path: pq.write_table(pq.read_table(path).drop_columns(["chrf_17"]), path),
    "chrf_2 of small in sentence 6 is nan, no count": lambda path: changed(path, "chrf_2", 5, float("nan")),
    "bleu_0 of small in sentence 2 is -1, no count": lambda path: changed(path, "bleu_0", 1, -1),
    "chrf_0 of small in sentence 1 is 2.5, no count": lambda path: changed(path, "chrf_0", 0, 2.5),
    "src_chars of small in sentence 3 is nan, no count": lambda path: changed(path, "src_chars", 2, float("nan")),
    "src_words of small in sentence 1 is 0.5, no count": lambda path: changed(path, "src_words", 0, 0.5),
    "output_len of small in sentence 4 is -2, no count": lambda path: changed(path, "output_len", 3, -2),
    "chrf_2 of small in sentence 3 is 100000, no count": lambda path: changed(path, "chrf_2", 2, 100_000),
    "bleu_3 of small in sentence 5 is 50000, no count": lambda path: changed(path, "bleu_3", 4, 50_000),
    "a row names no model": lambda path: changed(path, "model", 1),
    "sentence 3 of small has 2 rows": lambda path: changed(path, "sentence", 7, 2),
    "scores of 2 models: other and small (name one": lambda path: changed(path, "model", 0, "other"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_file_that_holds_no_scores_is_refused(what: str, tmp_path: Path) -> None:
    made_text(60).write(tmp_path)
    BAD_FILES[what](path := tmp_path / "small.parquet")
    with pytest.raises(CorpusError) as refused:
        read_scores(path)
    assert str(refused.value).startswith(f"{path}: {what}") and "\n" not in str(refused.value)


def test_an_unknown_model_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    made_text(60).write(tmp_path)
    with pytest.raises(CorpusError, match=r"no scores of a model 'smal' \(did you mean small\?\)"):
        read_scores(tmp_path / "small.parquet", "smal")


def test_scores_of_another_text_reference_or_tokeniser_are_refused(tmp_path: Path) -> None:
    text = made_text(60)
    lengths = TextFiles.model_validate(text.write(tmp_path))
    sentences, table = lengths.sentences(Path()), lengths.load(Path())
    small, big = (read_scores(tmp_path / f"{system}.parquet") for system in ("small", "big"))
    sentences.reference_hash[7] = "0" * 16
    with pytest.raises(
        CorpusError, match="no score of big for 1 of 58 sentences, the first is sentence 8, which was scored with"
    ):
        join_scores(sentences, table, [big])
    sentences.source_hash[:] = ["0" * 16] * 60
    with pytest.raises(CorpusError, match=r"no score of small for 58 of 58 sentences, the first is sentence 1 \("):
        join_scores(sentences, table, [small])
    output = Output("zh", text.outputs["big"], [0] * 60, [0.0] * 60)
    write_scores(tmp_path / "zh.parquet", *score_outputs(text.sources, text.references, [output], load_metrics("zh")))
    with pytest.raises(CorpusError, match=r"zh\.parquet: its bleu is .*tok:zh.*, but .*small\.parquet has .*tok:13a"):
        join_scores(lengths.sentences(Path()), table, [small, read_scores(tmp_path / "zh.parquet")])


def test_sentences_keep_their_scores_where_lengths_are_converted(tmp_path: Path) -> None:
    text = made_text(300)
    lengths = TextFiles.model_validate(text.write(tmp_path))
    raw, sentences, scores = lengths.load(Path()), lengths.sentences(Path()), [read_scores(tmp_path / "small.parquet")]
    table = raw.with_fertility(1.2, 1.45, "piece", "piece").counting("both")
    scored = join_scores(converted := sentences.converted(raw, 1.2, 1.45), table, scores)
    plain = join_scores(sentences, raw, scores)
    np.testing.assert_array_equal(scored.statistics[0], plain.statistics[0])
    kept = scored.pair >= 0
    np.testing.assert_array_equal(kept, plain.pair >= 0)
    for before, after, factor in ((sentences.src_len, converted.src_len, 1.2), (sentences.tgt_len, converted.tgt_len, 1.45)):
        assert np.abs(after[kept] - factor * before[kept]).max() < 1.0 and not after[~kept].any()
    evaluated = table.split(0.1, 3, 0)[1]
    rows = scored.evaluated(table, evaluated, 3, 0)
    src_len, tgt_len = evaluated.at_quantiles((np.arange(len(rows)) + 0.5) / len(rows))
    np.testing.assert_array_equal(converted.src_len[rows] + 1, src_len)
    np.testing.assert_array_equal(converted.tgt_len[rows] + 1, tgt_len)


def test_a_text_carries_what_is_read_after_the_join_and_no_lines_to_other_processes(tmp_path: Path) -> None:
    text = made_text(2_000)
    scored, _ = joined(text, tmp_path, "small", "big")
    assert scored.source == text.sources
    first, last = scored.scores
    assert not (*first.sentence, *first.source_hash, *first.reference_hash, *first.statistics, *last.features)
    words = first.features["src_words"][scored.rows[0]]
    np.testing.assert_array_equal(words[:3], [len(line.split()) for line in text.sources[:3]])
    sent = pickle.loads(pickle.dumps(scored))
    assert sent.source == [] and sent.key == scored.key and len(sent) == 2_000
    arrays = [*scored.statistics, *first.features.values(), scored.pair, *scored.rows]
    assert len(pickle.dumps(scored)) < 1.05 * sum(array.nbytes for array in arrays)
    times = np.random.default_rng(1).integers(0, 3, (2, 2_000))
    translated = [(rows := np.flatnonzero(of_device), of_device[rows]) for of_device in times]
    expected = sum(of_device[:, None] * one for of_device, one in zip(times, scored.statistics, strict=True))
    for rows in (slice(0, 2_000), slice(1_024, 1_100)):
        np.testing.assert_array_equal(scored.sums([translated, translated], rows), 2.0 * expected[rows])


def test_resamples_are_those_of_the_text_alone() -> None:
    weights = [next(resampling_weights(50, 1, name))[1] for name in ("one", "one", "other")]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    assert (weights[0][0] == 1.0).all() and weights[0][1:].mean() == pytest.approx(1.0, abs=0.02)
