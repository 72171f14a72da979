"""A file is there whole or not at all, whatever goes wrong."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.costs import write_profile
from simnmt.costs.profile import DeviceProfile, ProfileError
from simnmt.files import FolderLock, read_bounded, written_whole
from simnmt.results.run_directory import reserved, whole


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


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a") as one, written_whole(tmp_path / "a") as two:
        one.write_text("one")
        two.write_text("two")
    assert (tmp_path / "a").read_text() == "one"
    assert names_in(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    for text in ("first", "second"):
        with written_whole(tmp_path / "link") as partial:
            partial.write_text(text)
        assert (tmp_path / "real").read_text() == text
    assert (tmp_path / "link").is_symlink()
    assert names_in(tmp_path) == ["link", "real"]


def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    """Renamed over, a pipe would be a file from then on, and so would /dev/null."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "file").touch()
    for name in ("folder", ".", "..", "pipe", "link", "file/x", "none/x"):
        with pytest.raises(OSError), written_whole(tmp_path / name) as partial:
            partial.write_text("x")
    assert names_in(tmp_path) == ["file", "folder", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_profile_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, make_profile: object) -> None:
    assert callable(make_profile)
    profile = make_profile()
    assert isinstance(profile, DeviceProfile)
    for target in (tmp_path, tmp_path / "none" / "box.json"):
        with pytest.raises(ProfileError, match=r": cannot be written: .* \(choose another folder\)$") as caught:
            write_profile(target, profile)
        assert str(caught.value).startswith(f"{target}: ")
    assert names_in(tmp_path) == []


def killed_while(work: Callable[[], None]) -> None:
    """Run `work` in a process of its own, which ends by SIGKILL when it calls `die`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_is_swept_by_the_next_writer(tmp_path: Path) -> None:
    def write_half() -> None:
        with written_whole(tmp_path / "a") as partial:
            partial.write_text("half")
            die()

    def run_half() -> None:
        with reserved(tmp_path / "reports", "small") as target, whole(target) as folder:
            (folder / "page").write_text("half")
            die()

    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "notes").mkdir()
    killed_while(write_half)
    killed_while(run_half)
    assert [path.name[:16] for path in tmp_path.iterdir() if path.name != "reports"] == [".simnmt-partial-"]
    assert len(names_in(tmp_path / "reports")) == 3
    with written_whole(tmp_path / "b") as partial:
        partial.write_text("whole")
    assert names_in(tmp_path) == ["b", "reports"]
    with reserved(tmp_path / "reports", "other") as target, whole(target) as folder:
        (folder / "page").write_text("whole")
    assert names_in(tmp_path / "reports") == ["notes", target.name]


def test_the_sweep_spares_what_a_living_process_writes(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a") as partial, reserved(tmp_path, "small") as run, whole(run) as folder:
        partial.write_text("one")
        (folder / "page").write_text("page")
        child = os.fork()
        if child == 0:
            try:
                with written_whole(tmp_path / "b") as other:
                    other.write_text("two")
                with reserved(tmp_path, "small"):
                    raise KeyboardInterrupt
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert names_in(tmp_path) == ["a", "b", run.name]
    assert (run / "page").read_text() == "page"


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "deep" / "m"):
        with pytest.raises(BlockingIOError):
            FolderLock(tmp_path / "deep" / "m")
        (tmp_path / "deep" / "m" / "file").touch()
    with FolderLock(tmp_path / "deep" / "m"):
        (tmp_path / "deep" / "m" / "file").unlink()
    assert names_in(tmp_path / "deep") == ["m"]  # it was there before
    with FolderLock(tmp_path / "new" / "m"):
        pass
    assert names_in(tmp_path) == ["deep"]


def test_a_read_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 6 << 30)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert read_bounded(tmp_path / "file", 10) == b"x" * 10
    refusals = {
        "file": "more than 9 bytes",
        "large": "more than 9 bytes",
        "loop": os.strerror(errno.ELOOP),
        "pipe": "a pipe, not a file",
        "/dev/zero": "a device, not a file",
        "/dev/null": "a device, not a file",
        "/proc/self/status": "more than 9 bytes",
        ".": os.strerror(errno.EISDIR),
        "none": os.strerror(errno.ENOENT),
        "x" * 300: os.strerror(errno.ENAMETOOLONG),
        "a\0b": "no such name can exist",
    }
    for name, message in refusals.items():
        with pytest.raises(OSError) as refusal:
            read_bounded(tmp_path / name, 9)
        assert refusal.value.strerror == message, name
    assert read_bounded(tmp_path / "file", 1 << 50) == b"x" * 10, "a limit takes no memory"
    content = bytes(range(256)) * 10_000
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,), daemon=True)
    writer.start()
    assert read_bounded(tmp_path / "pipe", len(content), pipes=True) == content
    writer.join()
    for name in ("loop", "x" * 300, "a\0b"):
        with pytest.raises(OSError), written_whole(tmp_path / name):
            raise AssertionError("the work has begun")
