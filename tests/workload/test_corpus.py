from __future__ import annotations

import gzip
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.corpus import read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.filters import Dropped
from simnmt.workload.length_table import LengthTable

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
@pytest.mark.parametrize(
    ("src_lines", "tgt_lines"),
    [
        (3, 5),
        (2, 0),
    ],
)
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, src_lines: int, tgt_lines: int, packed: bool) -> None:
    source, target = (
        written(tmp_path, name, gzip.compress(b"word\n" * lines) if packed else b"word\n" * lines)
        for name, lines in (("a.txt", src_lines), ("b.txt", tgt_lines))
    )
    with pytest.raises(CorpusError) as caught:
        read(source, target)
    assert str(caught.value).startswith(f"{source}: {src_lines} lines, but {target} has {tgt_lines} (")
    assert "line i's translation" in str(caught.value)


@pytest.mark.parametrize(
    "device",
    [
        "/dev/zero",
        "/dev/tty",
    ],
)
def test_a_device_is_refused_at_once(tmp_path: Path, device: str) -> None:
    """Some never end."""
    if not Path(device).exists():
        pytest.skip(f"the system has no {device}")
    with pytest.raises(CorpusError, match=rf"^{device}: a device, not a file \(give a text file, or a pipe\)"):
        read(Path(device))
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(CorpusError, match="link: a device, not a file"):
        read(written(tmp_path, "a.txt", "a\n"), tmp_path / "link")


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = written(tmp_path, "bomb.tsv", gzip.compress(b" " * (64 << 20), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="a line of more than"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
