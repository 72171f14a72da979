"""Where a scenario comes from: a file, a shipped `@name`, a run directory to be repeated, or a mapping."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simnmt import shipped
from simnmt.results.run_directory import INPUT, RESOLVED, check_unchanged, read_manifest
from simnmt.scenario.build import input_files
from simnmt.scenario.complaints import validate
from simnmt.scenario.document import Document, document_of, read_document
from simnmt.scenario.model import Scenario, resolved
from simnmt.scenario.overrides import Override, apply_overrides
from simnmt.scenario.topology import check_topology
from simnmt.scenario.yaml_text import write_document


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario, checked and with absolute paths, beside the words it was given in."""

    scenario: Scenario
    document: Document
    """What was given, with the overrides in place: complaints find their line here."""
    text: bytes
    """As it was given: what scenario.input.yaml holds."""
    resolved_text: str
    """The scenario with every default, override and absolute path written out."""


def open_source(given: str | os.PathLike[str] | Mapping[str, object], overrides: Iterable[str | Override] = ()) -> Source:
    """Read and check a scenario; raises `ScenarioError`, or `RunDirectoryError` for a run directory that is not whole.

    Relative paths start at the scenario's folder; at the current one for a mapping, and for a shipped scenario or a run
    directory, whose own paths need no start, so that only overrides bring some. A run directory gives its resolved scenario,
    provided that no file it read has changed since.
    """
    here = Path.cwd()
    if isinstance(given, Mapping):
        return _source(document_of(given), overrides, here, None)
    name = os.fspath(given)
    if name.startswith("@"):
        path = shipped.find("scenarios", name)
        return _source(read_document(path), overrides, here, path)
    path = Path(name)
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where the name is too long
        document, regular = read_document(path), path.is_file()
        return _source(document, overrides, path.absolute().parent if regular else here, path if regular else None)
    manifest = read_manifest(path)
    remedy = f"restore it, or run {path / RESOLVED}"
    check_unchanged(manifest["outputs"], "a file", lambda file: path / file, remedy)
    source = _source(read_document(path / RESOLVED), overrides, here, path / INPUT)
    files = input_files(source.scenario, here)
    read = {name: digest for name, digest in manifest["inputs"].items() if name in files}
    check_unchanged(read, "an input", files.__getitem__, remedy)
    return source


def _source(document: Document, overrides: Iterable[str | Override], base: Path, file: Path | None) -> Source:
    """`file`: what scenario.input.yaml becomes a copy of; without one (a mapping, a pipe) it says the same in its own words."""
    text = write_document(document.data).encode() if file is None else file.read_bytes()
    document = apply_overrides(document, overrides)
    scenario = validate(Scenario, document)
    check_topology(scenario, document)
    scenario = resolved(scenario, base)
    return Source(scenario, document, text, write_document(scenario.model_dump(mode="json")))
