"""A file is there whole or not at all, whatever goes wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simnmt.costs import write_profile
from simnmt.costs.profile import DeviceProfile, ProfileError
from simnmt.files import written_whole


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["new.txt", "x" * 255, "old.txt"])
def test_what_was_written_appears_at_the_end(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.txt").write_text("old")
    with written_whole(tmp_path / name) as partial:
        partial.write_text("new")
        assert partial.parent == tmp_path
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
