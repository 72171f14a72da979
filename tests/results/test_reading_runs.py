"""What a run directory must hold to be run again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from simnmt.results.run_directory import INPUT, MANIFEST, RESOLVED, RunDirectoryError, check_unchanged, read_manifest, sha256


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The least that counts as a run directory."""
    for name in (INPUT, RESOLVED):
        (tmp_path / name).write_text("version: 1\n")
    outputs = {name: sha256(tmp_path / name) for name in (INPUT, RESOLVED)}
    (tmp_path / MANIFEST).write_text(json.dumps({"inputs": {}, "outputs": outputs}))
    return tmp_path


def test_a_whole_one_is_read(directory: Path) -> None:
    assert set(read_manifest(directory)) == {"inputs", "outputs"}


def test_a_half_one_is_refused(directory: Path) -> None:
    (directory / MANIFEST).unlink()
    with pytest.raises(RunDirectoryError, match="no complete run directory") as caught:
        read_manifest(directory)
    assert MANIFEST in str(caught.value)
    assert str(caught.value).startswith(f"{directory}:")


BAD_MANIFESTS = [
    b"",
    b"{",
    b"[]",
    b"3",
    b"{}",
    b'{"inputs": {}}',
    b'{"inputs": 1, "outputs": {}}',
    b'{"inputs": {}, "outputs": []}',
    b'{"inputs": {}, "outputs": 3}',
    b'{"inputs": {}, "outputs": ["scenario.input.yaml", "scenario.resolved.yaml"]}',
    *(
        json.dumps({"inputs": {}, "outputs": {INPUT: "", RESOLVED: "", name: ""}}).encode()
        for name in ("../../dev/zero", "/etc/passwd", "a\0b", "\ud800", "other.txt", "", ".")
    ),
    json.dumps({"inputs": {}, "outputs": {INPUT: "", RESOLVED: None}}).encode(),
    json.dumps({"inputs": {"a": ["b"]}, "outputs": {INPUT: "", RESOLVED: ""}}).encode(),
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BAD_MANIFESTS, ids=range(len(BAD_MANIFESTS)))
def test_a_manifest_that_is_none_is_refused(directory: Path, content: bytes) -> None:
    (directory / MANIFEST).write_bytes(content)
    with pytest.raises(RunDirectoryError, match="manifest") as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory / MANIFEST)


def test_files_that_changed_since_are_named(directory: Path) -> None:
    recorded = read_manifest(directory)["outputs"]
    check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    (directory / RESOLVED).write_text("version: 2\n")
    with pytest.raises(RunDirectoryError, match=r"a file .*changed since.*\(restore it\)") as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)
    (directory / RESOLVED).unlink()
    with pytest.raises(RunDirectoryError, match=r"a file .*No such file") as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)


def test_what_is_no_regular_file_is_not_waited_for(directory: Path) -> None:
    """Opening the pipe would wait for a writer, and /dev/zero never ends."""
    recorded = read_manifest(directory)["outputs"]
    (directory / RESOLVED).unlink()
    kinds = {
        "a pipe, not a file": os.mkfifo,
        "Is a directory": Path.mkdir,
        "a device, not a file": lambda path: path.symlink_to("/dev/zero"),
    }
    for kind, make in kinds.items():
        make(directory / RESOLVED)
        with pytest.raises(RunDirectoryError, match=rf"a file of that run cannot be read: {kind} \(restore it\)") as caught:
            check_unchanged(recorded, "a file", directory.joinpath, "restore it")
        assert caught.value.path == str(directory / RESOLVED)
        (directory / RESOLVED).rename(directory / f"old {make}")


def test_a_name_that_cannot_exist_is_refused(directory: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"an input of that run cannot be read: no such name can exist"):
        check_unchanged({"a\0b": ""}, "an input", directory.joinpath, "restore it")
