from __future__ import annotations

import gzip
import os
import re
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload import text_lines
from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import Dropped
from simnmt.workload.length_table import LengthTable
from simnmt.workload.text_lines import MAX_LINE_BYTES, TextLines

GERMAN = "das Haus ist alt\nja\n\nwir sehen den alten Mann\nja"
ENGLISH = "the house is old\nyes\nempty\nwe see the old man\nindeed so\n"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(source: Path, target: Path | None = None, **options: str) -> tuple[LengthTable, Dropped]:
    return read_corpus(source, target, **{"src_unit": "word", "tgt_unit": "word", **options})


def rows(table: LengthTable) -> list[tuple[int, int, int]]:
    return list(zip(table.src_len.tolist(), table.tgt_len.tolist(), table.count.tolist(), strict=True))


def test_two_files_become_joint_counts(tmp_path: Path) -> None:
    table, dropped = read(written(tmp_path, "de.txt", GERMAN), written(tmp_path, "en.txt", ENGLISH))
    assert rows(table) == [(1, 1, 1), (1, 2, 1), (4, 4, 1), (5, 5, 1)]
    assert dropped == Dropped("cnmt", 5, {"empty": 1, "too_long": 0, "ratio": 0})
    assert (table.name, table.source) == ("de-en", "de.txt and en.txt")
    assert table.filtered == "cnmt: 5 pairs read, 1 dropped (empty 1, too_long 0, ratio 0)"


def test_gzip_tsv_bom_and_crlf_give_the_same_table(tmp_path: Path) -> None:
    german, english = GERMAN.split("\n"), ENGLISH.split("\n")[:5]
    tsv = "".join(f"{de}\t{en}\n" for de, en in zip(german, english, strict=True))
    expected = rows(read(written(tmp_path, "de.txt", GERMAN), written(tmp_path, "en.txt", ENGLISH))[0])
    packed = [written(tmp_path, f"{n}.gz", gzip.compress(t.encode())) for n, t in (("d", GERMAN), ("e", ENGLISH))]
    marked = [
        written(tmp_path, name, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        for name, text in (("de_bom.txt", GERMAN), ("en_bom.txt", ENGLISH))
    ]
    assert rows(read(*packed)[0]) == expected
    assert rows(read(*marked)[0]) == expected
    assert rows(read(written(tmp_path, "pairs.tsv", tsv))[0]) == expected
    # Known by its content, not by its name.
    assert rows(read(written(tmp_path, "pairs.bin", gzip.compress(tsv.encode())))[0]) == expected


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no /dev/fd")
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_a_file_too(pack: Callable[[bytes], bytes]) -> None:
    """As in `simnmt corpus fit <(cut -f1 all.tsv) <(cut -f2 all.tsv)`: read once, never rewound."""
    reader, writer = os.pipe()
    try:
        os.write(writer, pack(b"a b\tc\n"))
        os.close(writer)
        assert rows(read(Path(f"/dev/fd/{reader}"))[0]) == [(2, 1, 1)]
    finally:
        os.close(reader)


def test_a_byte_order_mark_is_no_character_and_shifts_no_column(tmp_path: Path) -> None:
    table, _ = read(written(tmp_path, "a.tsv", b"\xef\xbb\xbfab\tcd\n"), src_unit="char", tgt_unit="char")
    assert rows(table) == [(2, 2, 1)]
    with pytest.raises(CorpusError, match=r"bad\.tsv:1:1: byte 0xff is not UTF-8"):
        read(written(tmp_path, "bad.tsv", b"\xef\xbb\xbf\xff\tcd\n"))


def test_quotation_marks_and_other_line_breaks_mean_nothing(tmp_path: Path) -> None:
    """A form feed, U+2028 or an open quotation mark inside a sentence must not shift the pairs."""
    text = 'he said "so\tja "\na\x0cb\u2028c\x85d\te f\n'
    assert rows(read(written(tmp_path, "q.tsv", text))[0]) == [(3, 2, 1), (4, 2, 1)]


def test_the_two_sides_can_have_different_units(tmp_path: Path) -> None:
    path = written(tmp_path, "enzh.tsv", "hello fine world\t你好，世界\n")
    assert rows(read(path, tgt_unit="mixed")[0]) == [(3, 5, 1)]
    assert rows(read(path, src_unit="char", tgt_unit="word", filter="none")[0]) == [(14, 1, 1)]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40))
def test_the_table_holds_what_a_plain_loop_counts(tmp_path_factory: pytest.TempPathFactory, pairs) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    source = written(folder, "s.txt", "".join("x " * n + "\n" for n, _ in pairs))
    target = written(folder, "t.txt", "".join("y " * m + "\n" for _, m in pairs))
    table, dropped = read(source, target, filter="none")
    assert rows(table) == [(n, m, pairs.count((n, m))) for n, m in sorted(set(pairs))]
    assert (dropped.pairs_read, dropped.pairs_dropped, table.pairs) == (len(pairs), 0, len(pairs))


def test_blank_lines_between_documents_are_no_pairs(tmp_path: Path) -> None:
    """News Commentary separates its documents by a blank line."""
    table, dropped = read(written(tmp_path, "nc.tsv", "Ja .\tYes .\n\nNein .\tNo .\n"), filter="none")
    assert (table.pairs, dropped.pairs_read) == (2, 2)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 298763648\n"
BAD_FILES = [
    (
        "undecodable byte",
        b"ok\tok\nna\xefve\tnaive\n",
        r":2:3: byte 0xef is not UTF-8 \(save the file as UTF-8, e.g. with iconv -f CP1252 -t UTF-8, where -f names",
    ),
    ("truncated character", b"ok\tok\nab\tab\xe4\xb8", r":2:6: byte 0xe4 is not UTF-8"),
    (
        "UTF-16",
        "hallo\thello\n".encode("utf-16"),
        r":1:1: UTF-16 text, not UTF-8 \(save the file as UTF-8, e.g. with iconv -f UTF-16 -t UTF-8\)",
    ),
    (
        "UTF-16 without mark",
        "hallo\thello\n".encode("utf-16-le"),
        r":1:2: UTF-16.*iconv -f UTF-16 -t UTF-8\)",
    ),
    ("one column", b"a\tb\nonly\n", r":2: 1 column, not 2 \(put one tab between source and target"),
    ("three columns", b"a\tb\tc\n", r":1: 3 columns, not 2 \(put one tab .* cut -f1,2"),
    ("NUL byte", b"a\tb\na b\tc \0 d\n", r":2:7: "),
    ("packed by xz", b"\xfd7zXZ\0\0\0\n", r": packed by "),
    ("packed by zstd", b"\x28\xb5\x2f\xfd\0\0", r": packed by "),
    ("pointer of Git LFS", POINTER, r": "),
    ("empty", b"", r": the corpus is empty \(give a file with one sentence a line\)"),
    (
        "all dropped",
        b"a\t\n\tb\n",
        r": no pair is left, filter cnmt: 2 pairs read, 2 dropped .*\(check that line",
    ),
    (
        "cut gzip",
        gzip.compress(b"a b\tc d\n" * 9)[:-9],
        r":.*broken gzip data.*\(fetch or compress it again\)",
    ),
    ("no gzip", b"\x1f\x8bnonsense", r": broken gzip data.*\(fetch or compress it again\)"),
    (
        "damaged gzip",
        gzip.compress(b"a\tb\n")[:10] + b"\xff" * 20,
        r": broken gzip data.*\(fetch or compress",
    ),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES])
def test_a_bad_file_is_named_with_place_and_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, "bad.tsv", content)
    with pytest.raises(CorpusError, match=f"^{re.escape(str(path))}{message}") as caught:
        read(path)
    assert caught.value.exit_status == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("src_lines", "tgt_lines"), [(3, 5), (5, 3), (4, 3), (3, 4), (0, 2), (2, 0)])
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, src_lines: int, tgt_lines: int, packed: bool) -> None:
    source, target = (
        written(tmp_path, name, gzip.compress(b"word\n" * lines) if packed else b"word\n" * lines)
        for name, lines in (("a.txt", src_lines), ("b.txt", tgt_lines))
    )
    with pytest.raises(CorpusError) as caught:
        read(source, target)
    assert str(caught.value).startswith(f"{source}: {src_lines} lines, but {target} has {tgt_lines} (")
    assert "line i's translation" in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    good, missing = written(tmp_path, "a.txt", "a\n"), tmp_path / "none.txt"
    for pair in [(missing, good), (good, missing), (missing, None)]:
        with pytest.raises(CorpusError, match=rf"^{re.escape(str(missing))}: no such file \(check the path\)"):
            read(*pair)
    with pytest.raises(CorpusError, match=r"Is a directory \(give a text file"):
        read(tmp_path, good)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/random", "/dev/null", "/dev/tty"])
def test_a_device_is_refused_at_once(tmp_path: Path, device: str) -> None:
    """Some never end."""
    if not Path(device).exists():
        pytest.skip(f"the system has no {device}")
    with pytest.raises(CorpusError, match=rf"^{device}: a device, not a file \(give a text file, or a pipe\)"):
        read(Path(device))
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(CorpusError, match="link: a device, not a file"):
        read(written(tmp_path, "a.txt", "a\n"), tmp_path / "link")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_corpus_of_more_than_its_stated_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """What gzip unpacks counts; a plain file is refused before it is read."""
    monkeypatch.setattr(text_lines, "MOST_STREAMED_BYTES", 400)
    assert read(written(tmp_path, "fits.tsv", pack(b"a\tb\n" * 100)))[1].pairs_read == 100
    with pytest.raises(CorpusError, match=r"large\.tsv: more than 400 bytes \(cut it into several files\)"):
        read(written(tmp_path, "large.tsv", pack(b"a\tb\n" * 101)))


@pytest.mark.parametrize(("limit", "most", "message"), [("BYTES", 300, "300 bytes"), ("LINES", 75, "75 lines")])
def test_text_that_is_kept_in_memory_has_a_smaller_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, message: str
) -> None:
    path = written(tmp_path, "text", b"a\tb\n" * 100)
    monkeypatch.setattr(text_lines, f"MOST_HELD_{limit}", most)
    assert TextLines(path).drain() == 100
    remedy = r"\(give a part of it, for memory holds its lines\)"
    with pytest.raises(CorpusError, match=rf"text: more than {message} {remedy}"):
        list(TextLines(path, kept="all"))
    assert len(list(islice(TextLines(path, kept="head"), 75))) == 75
    with pytest.raises(CorpusError, match=rf"text: more than {message} {remedy}"):
        list(TextLines(path, kept="head"))


def test_an_endless_pipe_ends_at_the_stated_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "MOST_STREAMED_BYTES", 1 << 16)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = subprocess.Popen(["sh", "-c", 'yes > "$1"', "sh", str(path)], stderr=subprocess.DEVNULL)
    try:
        with pytest.raises(CorpusError, match="pipe: more than 65,536 bytes"):
            TextLines(path).drain()
        with pytest.raises(CorpusError, match=r"pipe: a pipe, not a file \(give a text file\)"):
            TextLines(path, pipes=False).drain()
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_without_end_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """A gigabyte of blanks packs into a megabyte; the longest line that is read has the limit's length."""
    longest = b"a\t" + b"b " * (MAX_LINE_BYTES // 2 - 2) + b"\n"
    assert rows(read(written(tmp_path, "fits.tsv", pack(longest)), filter="none")[0])[0][:2] == (1, MAX_LINE_BYTES // 2 - 2)
    path = written(tmp_path, "long.tsv", pack(b"a\tb\n" + b" " * 3 * MAX_LINE_BYTES))
    with pytest.raises(CorpusError, match=r"long\.tsv:2: a line of more than 1,048,576 bytes \(give a text file"):
        read(path)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = written(tmp_path, "bomb.tsv", gzip.compress(b" " * (64 << 20), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="a line of more than"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_unknown_unit_or_filter_is_refused_before_reading(tmp_path: Path) -> None:
    missing = tmp_path / "never_opened.txt"
    with pytest.raises(CorpusError, match="unknown unit 'wrod'"):
        read(missing, missing, tgt_unit="wrod")
    with pytest.raises(CorpusError, match="unknown filter 'all'"):
        read(missing, missing, filter="all")


@pytest.mark.parametrize(("name", "lines", "times_as_long"), [("cnmt", 50_000, 20)])
def test_lines_take_a_few_times_as_long_as_parting_them_into_words(
    tmp_path: Path, name: str, lines: int, times_as_long: float
) -> None:
    lengths = np.random.default_rng(1).integers(3, 60, lines)
    source, target = (
        written(tmp_path, file, b"".join(word * int(n) + b"\n" for n in lengths))
        for file, word in (("s.txt", b"wort "), ("t.txt", b"word "))
    )
    began = time.process_time()
    table, _ = read(source, target, filter=name)
    assert table.pairs == lines
    took_s = time.process_time() - began
    began = time.process_time()
    for path in (source, target):
        for line in path.read_text().split("\n"):
            line.split()
    assert took_s < times_as_long * (time.process_time() - began)
