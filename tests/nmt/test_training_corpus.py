"""Text before training: its parts, its subwords, and the batches it is cut into."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.nmt.errors import NmtError, TrainingError
from simnmt.nmt.training.recipe import CorpusFiles, Recipe, read_training_corpus, recipe_for
from simnmt.nmt.training.trainer import epoch_batches
from simnmt.workload import CorpusError
from tests.nmt import toy_language

LINES = [" ".join(toy_language.OTHER[(7 * k + j * j) % 10] for j in range(1 + k % 5)) for k in range(200)]


def test_held_out_text_is_never_trained_on(tmp_path: Path) -> None:
    """Neither as a pair, nor one side of it beside another translation."""
    made = [(f"Satz {number}", f"line {number // 3}") for number in range(600)]  # three sources a target
    made += [(source.upper(), "another line") for source, _ in made[::5]]
    (tmp_path / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in made))
    corpus = read_training_corpus(CorpusFiles(tmp_path / "a.tsv"), heldout=40, seed=3)
    assert (len(corpus.dev), len(corpus.heldout)) == (40, 40)
    for side in (0, 1):
        small = {pair[side].casefold() for pair in [*corpus.dev, *corpus.heldout]}
        assert small & {pair[side].casefold() for pair in corpus.train} == set()
    counts = corpus.counts
    assert counts["shared_with_heldout"] > 0 and counts["dev"] == counts["heldout"] == 40
    assert 2 * counts["read"] == sum(counts.values())


def test_repeated_and_half_empty_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [f"a {number}\tb {number}" for number in range(60)]
    (tmp_path / "a.tsv").write_text("\n".join([*lines, " a  7 \tb 7", "\tb", "a\t "]) + "\n")
    corpus = read_training_corpus(CorpusFiles(tmp_path / "a.tsv"), heldout=2, seed=0)
    assert [corpus.counts[name] for name in ("read", "repeated", "blank")] == [63, 1, 2]


@pytest.mark.parametrize(
    ("src", "tgt", "error"),
    [
        (b"a\nb\nc\n", b"d\ne\nf\n", "3 different pairs"),
        (b"a\nb\nc\n", b"d\ne\n", "3 lines"),
        (b"a\nb\n", b"d\n\xff\n", "b:2:1"),
        (b"", b"", "0 different pairs"),
        (b"".join(b"%d\n" % number for number in range(100)), b"yes\n" * 100, "share a side"),
    ],
    ids=["few", "uneven", "no text", "empty", "one translation for all"],
)
def test_text_that_cannot_be_trained_on_is_refused(tmp_path: Path, src: bytes, tgt: bytes, error: str) -> None:
    for name, content in (("a", src), ("b", tgt)):
        (tmp_path / name).write_bytes(content)
    with pytest.raises((CorpusError, TrainingError), match=error):
        read_training_corpus(CorpusFiles(tmp_path / "a", tmp_path / "b"), heldout=5, seed=0)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80), st.integers(1, 120), st.integers(0, 5)
)
def test_an_epoch_holds_every_pair_once_in_batches_of_bounded_size(
    pairs: list[tuple[int, int]], batch_tokens: int, epoch: int
) -> None:
    src, tgt = (np.array(side) for side in zip(*pairs, strict=True))
    longer = np.maximum(src, tgt)
    batches = epoch_batches(longer, batch_tokens, seed=1, epoch=epoch, by=(src, tgt))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    assert all(len(rows) == 1 or longer[rows].max() * len(rows) <= batch_tokens for rows in batches)
    again = epoch_batches(longer, batch_tokens, seed=1, epoch=epoch, by=(src, tgt))
    assert [rows.tolist() for rows in again] == [rows.tolist() for rows in batches]


def test_a_recipe_by_name_has_a_small_model_and_one_by_file_the_models_sizes(tmp_path: Path) -> None:
    assert recipe_for("gru", vocab=500).architecture.src_vocab == recipe_for("gru", vocab=500).architecture.tgt_vocab == 500
    assert recipe_for("transformer").architecture.src_vocab == 8_000
    path = tmp_path / "mine.json"
    path.write_text(toy_language.GRU.model_dump_json())
    assert recipe_for(str(path), seed=9) == Recipe(toy_language.GRU, seed=9)
    for keys in (
        {"model": "gur"},
        {"model": str(path), "vocab": 7},
        {"model": "gru", "batch_tokens": 0},
        {"model": "gru", "peak_rate": math.nan},
    ):
        with pytest.raises(NmtError):
            recipe_for(**keys)
