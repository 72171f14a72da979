"""A file is there whole or not at all, whatever goes wrong."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simnmt.base import files
from simnmt.base.errors import InputError
from simnmt.base.files import FolderLock, check_model_folder, read_bounded, try_lock, written_whole
from simnmt.profile.blocks import ProfileError
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import write_profile
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


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a") as one, written_whole(tmp_path / "a") as two:
        one.write_text("one")
        two.write_text("two")
    assert (tmp_path / "a").read_text() == "one"
    assert names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "none"])
def test_a_new_file_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Neither a file that is there nor one that appears while the new one is written."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:  # as FAT and some network file systems
        monkeypatch.setattr(os, "link", refuse)
    with written_whole(tmp_path / "a", new=True) as partial:
        partial.write_text("first")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("a", "dangling"):
        with pytest.raises(FileExistsError), written_whole(tmp_path / name, new=True):
            raise AssertionError("the work has begun")
    with pytest.raises(FileExistsError), written_whole(tmp_path / "b", new=True) as partial:
        partial.write_text("late")
        (tmp_path / "b").write_text("early")
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["first", "early"]
    assert names_in(tmp_path) == ["a", "b", "dangling"]


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


def test_a_profile_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path, make_profile: object) -> None:
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


def test_the_loser_of_two_first_writers_leaves_the_folder_of_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have made the folder, as far as they know, before either of them locks it."""
    folder, both_have_opened = tmp_path / "deep" / "m", threading.Barrier(2, timeout=10.0)

    def lock_after_both_have_opened(descriptor: int) -> bool | None:
        both_have_opened.wait()
        return try_lock(descriptor)

    def contend(_: int) -> FolderLock | None:
        try:
            return FolderLock(folder)
        except BlockingIOError:
            return None

    monkeypatch.setattr(files, "try_lock", lock_after_both_have_opened)
    with ThreadPoolExecutor(2) as pool:
        [winner] = [lock for lock in pool.map(contend, range(2)) if lock is not None]
    assert folder.is_dir()
    with winner:
        (folder / "file").touch()
    assert names_in(folder) == ["file"]


def test_a_folder_that_vanishes_between_making_and_locking_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the holder before, which removes it and its parents while it is empty."""
    opened: list[Path] = []

    def open_once_removed(path: Path, flags: int) -> int:
        opened.append(path)
        if len(opened) == 1:
            path.rmdir()
            path.parent.rmdir()
        return os_open(path, flags)

    os_open = os.open
    monkeypatch.setattr(os, "open", open_once_removed)
    with FolderLock(tmp_path / "deep" / "m"):
        assert len(opened) == 2 and (tmp_path / "deep" / "m").is_dir()
    assert names_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_leaves_no_parents(tmp_path: Path) -> None:
    """A name is found too long when the folders above it are made already."""
    with pytest.raises(OSError) as refusal:
        FolderLock(tmp_path / "new" / "deep" / ("x" * 300))
    assert refusal.value.errno == errno.ENAMETOOLONG
    assert names_in(tmp_path) == []
    with pytest.raises(RunDirectoryError, match="nothing was left behind"), reserved(tmp_path / "reports", "x" * 300):
        raise AssertionError("must not come this far")
    assert names_in(tmp_path) == []


def test_an_interrupt_before_the_lock_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([KeyboardInterrupt()])

    def interrupted_once(descriptor: int) -> bool | None:
        for interrupt in calls:
            raise interrupt
        return try_lock(descriptor)

    monkeypatch.setattr(files, "try_lock", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        FolderLock(tmp_path / "deep" / "m")
    assert names_in(tmp_path) == []


def test_a_name_that_another_run_holds_while_it_sweeps_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that begins in the same second looks for left-overs, and locks the folder that is just made for a moment."""
    answers = iter([False])
    monkeypatch.setattr(files, "try_lock", lambda descriptor: next(answers, True))
    with reserved(tmp_path, "small") as target, whole(target) as folder:
        (folder / "page").write_text("page")
    assert target.name.endswith("-2") and names_in(target) == ["page"]


def test_runs_that_begin_together_get_folders_of_their_own(tmp_path: Path) -> None:
    begin = threading.Barrier(6, timeout=10.0)

    def run(number: int) -> Path:
        begin.wait()
        with reserved(tmp_path / "reports", "small") as target, whole(target) as folder:
            (folder / "page").write_text(str(number))
        return target

    for _ in range(5):
        with ThreadPoolExecutor(6) as pool:
            targets = list(pool.map(run, range(6)))
        assert [(target / "page").read_text() for target in targets] == [str(number) for number in range(6)]
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


def test_only_the_files_of_a_model_folder_that_libraries_read_are_bounded(tmp_path: Path) -> None:
    """400 MB of examples, or an archive of more than any tensor, beside a model are no fault of the model."""
    sizes = {"train.jsonl": 400 << 20, "dev.txt": 400 << 20, "results.json": 400 << 20, "corpus.tar": 65 << 30}
    for name, size in sizes.items():
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    check_model_folder(tmp_path)
    texts = ("tokenizer.json", "generation_config.json", "model.safetensors.index.json", "vocab.txt", "source.spm")
    refused = dict.fromkeys(texts, 300 << 20) | dict.fromkeys(("model.safetensors", "pytorch_model.bin"), 65 << 30)
    for name, size in refused.items():
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
        with pytest.raises(OSError, match="more than") as refusal:
            check_model_folder(tmp_path)
        assert refusal.value.filename == str(tmp_path / name)
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "shard")
    with pytest.raises(OSError, match="a pipe, not a file"):
        check_model_folder(tmp_path)


@pytest.mark.parametrize(
    "head",
    [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
        b"\xfd7zXZ\0\0",
        b"\x28\xb5\x2f\xfd\0",
        b"PK\x03\x04",
    ],
)
def test_a_pointer_or_a_packed_file_is_refused_in_place_of_a_text(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "text").write_bytes(head)
    with pytest.raises(InputError) as refused:
        read_bounded(tmp_path / "text")
    assert refused.value.path == str(tmp_path / "text") and refused.value.remedy


def test_a_pointer_is_refused_in_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_model_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
    with pytest.raises(InputError):
        check_model_folder(tmp_path)
