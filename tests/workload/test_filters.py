from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import FILTERS, RatioFilter, filter_named, keep
from simnmt.workload.length_regression import fit_lengths
from simnmt.workload.length_table import LengthTable, read_table


def kept_by(name: str, src_len: int, tgt_len: int) -> bool:
    kept, _ = keep(name, np.array([src_len]), np.array([tgt_len]), np.array([1]))
    return bool(kept[0])


@pytest.mark.parametrize(
    ("src_len", "tgt_len", "kept"),
    [
        (0, 3, False),
        (3, 0, False),
        (0, 0, False),
        (200, 200, True),
        (201, 200, False),
        (200, 201, False),
        (1, 5, True),  # 5 to 1, but too short to be sure
        (1, 6, False),
        (6, 1, False),
        (2, 6, True),  # exactly 3 to 1
        (2, 7, False),
        (60, 20, True),
        (61, 20, False),
    ],
)
def test_worked_examples_of_cnmt_08(src_len: int, tgt_len: int, kept: bool) -> None:
    assert kept_by("cnmt", src_len, tgt_len) is kept


def test_without_a_filter_only_an_empty_side_is_dropped() -> None:
    assert kept_by("none", 1, 5000)
    assert not kept_by("none", 0, 5) and not kept_by("none", 5, 0)


def test_each_pair_is_booked_under_the_first_rule_that_drops_it() -> None:
    src_len, tgt_len = np.array([0, 300, 300, 2, 5]), np.array([300, 1, 300, 9, 5])
    kept, dropped = keep("cnmt", src_len, tgt_len, np.array([1, 10, 100, 1000, 10000]))
    assert kept.tolist() == [False, False, False, False, True]
    assert dropped.rejects == {"empty": 1, "too_long": 110, "ratio": 1000}
    assert (dropped.pairs_read, dropped.pairs_dropped, dropped.pairs_kept) == (11111, 1111, 10000)
    assert str(dropped) == "cnmt: 11111 pairs read, 1111 dropped (empty 1, too_long 110, ratio 1000)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cmnt", r"unknown filter 'cmnt' \(did you mean cnmt\?\)"),
        ("ratio:kind=ratio", r"no parameter 'kind' \(known: max_ratio, max_len, tgt_per_src\)"),
        ("ratio:max_ratio", r"max_ratio: input should be a valid number"),
    ],
)
def test_what_names_no_filter_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        kept_by(name, 1, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "src_len", "tgt_len", "kept"),
    [
        ("", 10, 20, True),  # exactly twice
        ("", 10, 21, False),
        ("", 21, 10, False),
        ("", 1, 3, False),  # short ones too, unlike cnmt
        ("", 200, 150, True),
        ("", 201, 150, False),
        ("max_ratio=3,max_len=50", 10, 30, True),
        ("max_ratio=3,max_len=50", 51, 50, False),
        # About its own ratio: 16 Chinese tokens are to be expected of 10 English words.
        ("tgt_per_src=1.6", 10, 32, True),
        ("tgt_per_src=1.6", 10, 33, False),
        ("tgt_per_src=1.6", 10, 8, True),
        ("tgt_per_src=1.6", 10, 7, False),
    ],
)
def test_the_ratio_filter_has_bounds_of_your_own(parameters: str, src_len: int, tgt_len: int, kept: bool) -> None:
    assert kept_by(f"ratio:{parameters}" if parameters else "ratio", src_len, tgt_len) is kept
    given = {key: float(value) for key, value in (part.split("=") for part in parameters.split(",") if part)}
    if "max_len" in given:
        given["max_len"] = int(given["max_len"])
    from_a_scenario = RatioFilter.model_validate({"kind": "ratio", **given})
    assert keep(from_a_scenario, *(np.array([n]) for n in (src_len, tgt_len, 1)))[0].tolist() == [kept]
    assert from_a_scenario.filter().name == filter_named(f"ratio:{parameters}" if parameters else "ratio").name


def test_the_parameters_of_a_filter_are_stated_with_the_dropped_pairs() -> None:
    _, dropped = keep("ratio:max_ratio=1.5", np.array([10, 10]), np.array([10, 16]), np.array([3, 4]))
    assert (
        str(dropped) == "ratio max_ratio=1.5 max_len=200 tgt_per_src=1: 7 pairs read, 4 dropped (empty 0, too_long 0, ratio 4)"
    )


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_drops_empty_sides(name: str) -> None:
    """A request without a token is none."""
    for pair in ((0, 3), (3, 0)):
        kept, dropped = keep(name, *(np.array([n]) for n in (*pair, 5)))
        assert not kept.any() and dropped.rejects["empty"] == 5


def with_mismatched_pairs(table: LengthTable, seed: int) -> LengthTable:
    """The table and 10 % more pairs whose two sides come from different sentences."""
    extra = round(0.1 * table.pairs)
    src_len, _ = table.sample(seed, 0, "mismatched_sources", extra)
    _, tgt_len = table.sample(seed, 0, "mismatched_targets", extra)
    columns = (
        np.concatenate([table.src_len, src_len]),
        np.concatenate([table.tgt_len, tgt_len]),
        np.concatenate([table.count, np.ones(extra, dtype=np.int64)]),
    )
    return LengthTable.of_pairs("mismatched", "test", table.src_unit, table.tgt_unit, *columns)


def filtered(table: LengthTable, name: str) -> LengthTable:
    kept, _ = keep(name, table.src_len, table.tgt_len, table.count)
    columns = (table.src_len[kept], table.tgt_len[kept], table.count[kept])
    return LengthTable("filtered", "test", table.src_unit, table.tgt_unit, *columns)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["de-en-news", "fr-en-news", "fr-en-docs", "en-zh-docs"])
def test_the_filter_at_least_halves_the_harm_of_mismatched_pairs_on_long_sentences(name: str, seed: int) -> None:
    """CNMT-08. (On short sentences it cannot: see the module's docstring, and the next test.)"""
    table = read_table(shipped_files.find("traces/lengths", name))
    harmed = with_mismatched_pairs(table, seed)
    slope = fit_lengths(table).len_slope
    unfiltered_shift = abs(fit_lengths(filtered(harmed, "none")).len_slope - slope)
    filtered_shift = abs(fit_lengths(filtered(harmed, "cnmt")).len_slope - slope)
    assert unfiltered_shift > 0.04  # else there would be nothing to repair
    assert filtered_shift <= 0.5 * unfiltered_shift


@pytest.mark.parametrize("name", ["de-en-tatoeba", "en-zh-flores"])
def test_elsewhere_the_filter_still_helps(name: str) -> None:
    table = read_table(shipped_files.find("traces/lengths", name))
    harmed = with_mismatched_pairs(table, 0)
    slope = fit_lengths(table).len_slope
    shifts = {f: abs(fit_lengths(filtered(harmed, f)).len_slope - slope) for f in ("none", "cnmt")}
    assert 0.5 < shifts["cnmt"] / shifts["none"] < 0.85


CORPORA = Path(__file__).resolve().parents[3] / "shared" / "data" / "corpora"
Lines = list[str]


def mismatched(src: Lines, tgt: Lines, seed: int) -> tuple[Lines, Lines]:
    """The lines, and as many again as a tenth of them, paired at random."""
    generator = np.random.default_rng(seed)
    extra = len(src) // 10
    one, other = generator.integers(len(src), size=(2, extra))
    return src + [src[i] for i in one], tgt + [tgt[i] for i in other]


def slope(folder: Path, src: Lines, tgt: Lines, name: str, tgt_unit: str = "word") -> float:
    for file, lines in (("s.txt", src), ("t.txt", tgt)):
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    table, _ = read_corpus(folder / "s.txt", folder / "t.txt", src_unit="word", tgt_unit=tgt_unit, filter=name)
    return fit_lengths(table).len_slope


def shift_left(folder: Path, src: Lines, tgt: Lines, name: str, tgt_unit: str = "word", seed: int = 1) -> float:
    """What is left of the shift of the slope, as a share of what it is without a filter."""
    harmed = mismatched(src, tgt, seed)
    right = slope(folder, src, tgt, "none", tgt_unit)
    shift = slope(folder, *harmed, "none", tgt_unit) - right
    assert shift < -0.04  # else there would be nothing to repair
    return abs((slope(folder, *harmed, name, tgt_unit) - right) / shift)


def lines_of(corpus: str, most: int) -> tuple[Lines, Lines]:
    source, target = corpus.rpartition("_")[2].split("-")
    src, tgt = ((CORPORA / corpus / f"{side}.txt").read_text(encoding="utf-8").split("\n")[:-1] for side in (source, target))
    return src[:most], tgt[:most]


@pytest.fixture(scope="module")
def made_up() -> tuple[Lines, Lines]:
    """3,000 pairs of 3 to 60 words of like length, whose words differ on the two sides."""
    generator = np.random.default_rng(4)
    lengths = generator.integers(3, 60, size=3000)
    others = np.maximum(np.rint(lengths * generator.normal(0.95, 0.12, lengths.size)), 3).astype(int)
    stems = ["am", "fluss", "steht", "das", "alte", "haus", "bei", "nacht"]

    def sentence(length: int, ending: str) -> str:
        return "so " + " ".join(stems[i] + ending for i in generator.integers(len(stems), size=length - 1))

    return [sentence(n, "") for n in lengths], [sentence(m, "o") for m in others]


@pytest.mark.parametrize("name", ["cnmt", "ratio"])
def test_every_filter_halves_the_shift_on_made_up_text(tmp_path: Path, made_up: tuple[Lines, Lines], name: str) -> None:
    assert shift_left(tmp_path, *made_up, name) <= 0.5


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora of real text are not in ../shared/data")
@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        *((corpus, name) for corpus in ("wmt_news_a_fr-en", "python_docs_fr-en") for name in ("cnmt", "ratio")),
        # About its own ratio; about 1 it would drop a fifth of the good pairs.
        ("flores_tico_en-zh", "ratio:tgt_per_src=1.65"),
        ("tatoeba_fr-en", "ratio"),
    ],
)
def test_on_real_text_too(tmp_path: Path, corpus: str, name: str) -> None:
    """Left out: `cnmt` on short or on few sentences, where it falls short (see test_filters)."""
    assert shift_left(tmp_path, *lines_of(corpus, 6_000), name, "mixed" if corpus.endswith("zh") else "word") <= 0.5


def test_without_a_filter_nothing_is_repaired(tmp_path: Path, made_up: tuple[Lines, Lines]) -> None:
    assert shift_left(tmp_path, *made_up, "none") == pytest.approx(1.0)


def print_figures() -> None:
    ratios = {"de-en": 1.0, "fr-en": 0.92, "en-zh": 1.65}
    for corpus in sorted(path.name for path in CORPORA.iterdir()):
        pair, lines = corpus.rpartition("_")[2], lines_of(corpus, 30_000)
        unit = "mixed" if pair == "en-zh" else "word"
        print(corpus, end="")
        for name in ("cnmt", "ratio", f"ratio:tgt_per_src={ratios[pair]}"):
            with tempfile.TemporaryDirectory() as folder:
                left = [shift_left(Path(folder), *lines, name, unit, seed) for seed in (1, 2, 3)]
            print(f"  {name} {np.mean(left):.2f}", end="", flush=True)
        print()


if __name__ == "__main__":
    print_figures()
