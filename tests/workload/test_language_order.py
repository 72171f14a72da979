"""A corpus whose languages stand the other way round than its names say is told by its lengths."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.workload.corpus import languages_in, order_warning, read_corpus
from simnmt.workload.filters import dropped_warning
from simnmt.workload.length_table import LengthTable, read_table

CORPORA = Path(__file__).resolve().parents[3] / "shared" / "data" / "corpora"


def made_up(
    ratio: float,
    name: str = "fr-en",
    units: tuple[str, str] = ("word", "word"),
    pairs: int = 3000,
    scatter: float = 0.2,
    **keys,
) -> LengthTable:
    """Pairs of 2 to 60 words, their ratios scattered about one."""
    generator = np.random.default_rng(2)
    src_len = generator.integers(2, 60, pairs)
    tgt_len = np.maximum(np.rint(src_len * ratio * generator.normal(1.0, scatter, pairs)), 1).astype(int)
    return LengthTable.of_pairs(name, "made up", *units, src_len, tgt_len, **keys)


def turned(table: LengthTable, **keys: str) -> LengthTable:
    """The same text with its sides swapped under the same name."""
    units = (table.tgt_unit, table.src_unit) if keys.pop("units", "") else (table.src_unit, table.tgt_unit)
    return LengthTable.of_pairs(table.name, "made up", *units, table.tgt_len, table.src_len, table.count, **keys)


@pytest.mark.parametrize("name", shipped_files.names("traces/lengths"))
def test_no_shipped_table_raises_an_alarm(name: str) -> None:
    assert order_warning(read_table(shipped_files.find("traces/lengths", name))) is None


@pytest.mark.parametrize("name", ["fr-en-news", "fr-en-docs", "fr-en-mixed"])
def test_a_shipped_table_turned_round_does(name: str) -> None:
    warning = order_warning(turned(read_table(shipped_files.find("traces/lengths", name))))
    assert warning is not None and "\n" not in warning
    assert warning.startswith("source and target fr-en seem to be swapped: 1.") and "0.90 to 0.93 in @fr-en-docs" in warning


@pytest.mark.parametrize("name", ["de-en-news", "de-en-tatoeba"])
def test_the_order_of_german_and_english_cannot_be_detected(name: str) -> None:
    assert order_warning(turned(read_table(shipped_files.find("traces/lengths", name)))) is None


def test_the_opposite_direction_is_known_from_the_same_tables() -> None:
    assert order_warning(made_up(1 / 0.92, "en-fr-mine")) is None
    warning = order_warning(made_up(0.92, "en-fr-mine"))
    assert warning is not None and "@fr-en-news turned round" in warning


def test_the_languages_are_taken_from_the_table_or_from_its_name() -> None:
    assert order_warning(made_up(1.09, "mine")) is None
    assert order_warning(made_up(1.09, "mine", languages="fr-en")) is not None
    assert order_warning(made_up(1.09, "de-en", languages="fr-en")) is not None
    assert [languages_in(name) for name in ("fr-en", "fr-en-news", "fr-en.v2", "fr-eng", "news", "xfr-en", "")] == [
        *["fr-en"] * 3,
        *[""] * 4,
    ]


def test_a_few_pairs_raise_no_alarm() -> None:
    """Thirty pairs of French and English in the right order may well have a ratio above 1."""
    assert order_warning(made_up(1.09, pairs=29)) is None
    table = made_up(0.92, scatter=0.5)
    samples = [table.split(0.01, seed)[0] for seed in range(200)]
    assert sum(sample.mean_tgt_len > 1.03 * sample.mean_src_len for sample in samples) > 10
    alarms = sum(order_warning(sample) is not None for sample in samples)
    assert alarms <= 2


def test_an_expected_ratio_replaces_the_shipped_tables() -> None:
    table = made_up(1 / 1.4, "hu-vi")
    assert order_warning(table) is None
    warning = order_warning(table, expect_ratio=1.4)
    assert warning is not None and "hu-vi seem to be swapped: 0.72 target tokens" in warning and "you expect 1.4" in warning
    assert order_warning(made_up(1.4, "hu-vi"), expect_ratio=1.4) is None
    # It also overrides them.
    assert order_warning(made_up(1.09), expect_ratio=1.09) is None
    # Too close to 1 to tell.
    assert order_warning(made_up(1.02, "hu-vi"), expect_ratio=1 / 1.02) is None


def test_a_ratio_far_from_both_orders_is_odd() -> None:
    """Such as lengths of which one side was counted by the character."""
    warning = order_warning(made_up(5.0))
    assert warning is not None and warning.startswith("odd lengths: 5.") and "do the units fit both languages" in warning
    assert order_warning(made_up(1 / 5.0)) is not None and order_warning(made_up(2.0)) is not None
    assert order_warning(made_up(1.3)) is None  # odd for French, but neither swapped nor far off
    assert order_warning(made_up(5.0, "de-en")) is not None


def test_chinese_and_english_turned_round_are_seen_with_their_units_or_without() -> None:
    table = read_table(shipped_files.find("traces/lengths", "en-zh-docs"))
    swapped = order_warning(turned(table, units="too"))
    assert swapped is not None and swapped.startswith("en-zh counted by mixed / word: units or languages seem to be swapped")
    in_wrong_units = order_warning(turned(table))
    assert in_wrong_units is not None and "seem to be swapped: 0.60 target tokens per source token" in in_wrong_units


def test_the_order_of_languages_is_not_judged_where_a_filter_dropped_most_pairs() -> None:
    swapped = partial(made_up, 1.1, "fr-en-mine")
    assert order_warning(swapped()) is not None
    assert order_warning(swapped(filtered="cnmt: 100 pairs read, 50 dropped (ratio 50)")) is not None
    assert order_warning(swapped(filtered="cnmt: 100 pairs read, 63 dropped (empty 0, too_long 0, ratio 63)")) is None


def test_units_that_no_shipped_table_has_cannot_be_compared() -> None:
    assert order_warning(made_up(3.0, units=("subword", "subword"))) is None


def test_extreme_expectations_do_no_harm() -> None:
    for expected in (1e-3, 1e3, 1.0, math.nan):
        warning = order_warning(made_up(1.0, "mine"), expect_ratio=expected)
        assert (warning is None) == (expected in (1.0,) or math.isnan(expected))


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora of real text are not in ../shared/data")
@pytest.mark.parametrize(
    "corpus", ["tatoeba_fr-en", "wmt_news_a_fr-en", "tatoeba_en-zh", "python_docs_en-zh", "flores_tico_en-zh"]
)
def test_swapped_real_text_is_detected(tmp_path: Path, corpus: str) -> None:
    """Of Tatoeba's French and Chinese no table is shipped by itself."""
    source, target = corpus.rpartition("_")[2].split("-")
    unit = "mixed" if target == "zh" else "word"
    lines = {
        side: (CORPORA / corpus / f"{side}.txt").read_text(encoding="utf-8").split("\n")[:10_000] for side in (source, target)
    }

    def warning(of_source: str, of_target: str) -> str | None:
        for side, content in ((source, of_source), (target, of_target)):
            (tmp_path / f"{side}.txt").write_text("\n".join(lines[content]) + "\n", encoding="utf-8")
        table, _ = read_corpus(tmp_path / f"{source}.txt", tmp_path / f"{target}.txt", src_unit="word", tgt_unit=unit)
        return order_warning(table) or dropped_warning(table.filtered)

    assert warning(source, target) is None
    assert warning(target, source) is not None
