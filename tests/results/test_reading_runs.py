"""What a run directory must hold to be run again."""

from __future__ import annotations

import json
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


def test_a_run_directory_without_a_manifest_is_refused(directory: Path) -> None:
    (directory / MANIFEST).unlink()
    with pytest.raises(RunDirectoryError) as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory)


BAD_MANIFESTS = [
    b"",
    b"[]",
    b'{"inputs": {}}',
    b'{"inputs": 1, "outputs": {}}',
    b'{"inputs": {}, "outputs": []}',
    *(
        json.dumps({"inputs": {}, "outputs": {INPUT: "", RESOLVED: "", name: ""}}).encode()
        for name in ("../../dev/zero", "/etc/passwd", "a\0b", "other.txt", "")
    ),
    json.dumps({"inputs": {}, "outputs": {INPUT: "", RESOLVED: None}}).encode(),
    json.dumps({"inputs": {"a": ["b"]}, "outputs": {INPUT: "", RESOLVED: ""}}).encode(),
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BAD_MANIFESTS, ids=range(len(BAD_MANIFESTS)))
def test_a_malformed_manifest_is_refused(directory: Path, content: bytes) -> None:
    (directory / MANIFEST).write_bytes(content)
    with pytest.raises(RunDirectoryError) as caught:
        read_manifest(directory)
    assert caught.value.path == str(directory / MANIFEST)


def test_files_that_changed_since_are_named(directory: Path) -> None:
    manifest = read_manifest(directory)
    assert set(manifest) == {"inputs", "outputs"}
    recorded = manifest["outputs"]
    check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    (directory / RESOLVED).write_text("version: 2\n")
    with pytest.raises(RunDirectoryError) as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)
    (directory / RESOLVED).unlink()
    with pytest.raises(RunDirectoryError) as caught:
        check_unchanged(recorded, "a file", directory.joinpath, "restore it")
    assert caught.value.path == str(directory / RESOLVED)
