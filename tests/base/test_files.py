"""A file is there whole or not at all, whatever goes wrong."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simnmt.base.errors import InputError
from simnmt.base.files import check_model_folder, read_bounded, written_whole
from simnmt.results.run_directory import RunDirectoryError, reserved, whole


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["new.txt", "x" * 255, "old.txt"])
def test_what_was_written_appears_at_the_end(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.txt").write_text("old")
    with written_whole(tmp_path / name) as partial:
        partial.write_text("new")
        assert partial.parent.parent == tmp_path
        assert (tmp_path / "old.txt").read_text() == "old"
    assert (tmp_path / name).read_text() == "new"
    assert names_in(tmp_path) == sorted({name, "old.txt"})


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "old.txt").write_text("old")
    with pytest.raises(error), written_whole(tmp_path / "old.txt") as partial:
        partial.write_text("half")
        raise error
    assert names_in(tmp_path) == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_a_full_disk_is_reported_with_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, written_whole(tmp_path / "out.json"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "out.json")


@pytest.mark.parametrize("target", ["real", "nowhere"])
def test_a_link_is_replaced_and_never_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").write_text("kept")
    (tmp_path / "link").symlink_to(target)
    with written_whole(tmp_path / "link") as partial:
        partial.write_text("new")
    assert (tmp_path / "link").read_text() == "new" and not (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "kept" and names_in(tmp_path) == ["link", "real"]


def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    """Renamed over, a pipe would be a file from then on, and so would /dev/null."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "file").touch()
    for name in ("folder", ".", "..", "pipe", "link", "file/x", "none/x", "a\0b", "x" * 300):
        with pytest.raises(OSError), written_whole(tmp_path / name):
            raise AssertionError("the work has begun")
    assert names_in(tmp_path) == ["file", "folder", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_small_file_is_read_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ab")
    tracemalloc.start()
    assert read_bounded(tmp_path / "a", 256 << 20) == b"ab"
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_runs_that_begin_together_get_folders_of_their_own(tmp_path: Path) -> None:
    begin = threading.Barrier(6, timeout=10.0)

    def run(number: int) -> str:
        begin.wait()
        with reserved(tmp_path / "reports", "small") as target, whole(target) as folder:
            (folder / "page").write_text(str(number))
        return (target / "page").read_text()

    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            assert [*pool.map(run, range(6))] == [*"012345"]
    assert len(names_in(tmp_path / "reports")) == 30


def test_a_link_to_nowhere_holds_no_runs(tmp_path: Path) -> None:
    """It exists and is no folder: a search for a free name in it would never end."""
    (tmp_path / "reports").symlink_to("nowhere")
    with pytest.raises(RunDirectoryError, match="cannot write the run"), reserved(tmp_path / "reports", "small"):
        raise AssertionError("must not come this far")


def test_a_read_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 6 << 30)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert read_bounded(tmp_path / "file", 10) == b"x" * 10
    for name in ("file", "large", "loop", "pipe", "/dev/zero", "/proc/self/status", ".", "none", "x" * 300):
        with pytest.raises(OSError):
            read_bounded(tmp_path / name, 9)
    content = bytes(range(256)) * 10_000
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True)
    writer.start()
    assert read_bounded(tmp_path / "pipe", len(content), pipes=True) == content
    writer.join()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"


@pytest.mark.parametrize("head", [POINTER, b"\xfd7zXZ\0\0", b"\x28\xb5\x2f\xfd\0", b"PK\x03\x04"])
def test_a_pointer_or_a_packed_file_is_refused_in_place_of_a_text_or_a_model(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_model_folder(tmp_path)
    (tmp_path / "text").write_bytes(head)
    for read in (lambda: read_bounded(tmp_path / "text"), lambda: check_model_folder(tmp_path)):
        with pytest.raises(InputError) as refused:
            read()
        assert refused.value.path == str(tmp_path / "text") and refused.value.remedy
