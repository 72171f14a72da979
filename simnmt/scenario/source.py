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
from simnmt.scenario.overrides import Override
from simnmt.scenario.yaml_text import write_document


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario, checked and with absolute paths, beside the words it was given in."""

    scenario: Scenario
    text: bytes
    """As it was given: what scenario.input.yaml holds."""

    @property
    def resolved_text(self) -> str:
        """The scenario with every default, override and absolute path written out."""
        return write_document(self.scenario.model_dump(mode="json"))


def open_source(given: str | os.PathLike[str] | Mapping[str, object], overrides: Iterable[str | Override] = ()) -> Source:
    """Read and check a scenario; raises `ScenarioError`, or `RunDirectoryError` for a run directory that is not whole.

    A run directory gives its resolved scenario, provided that no file it read has changed since.
    """
    if isinstance(given, Mapping):
        document, base = document_of(given), Path.cwd()
        text = write_document(document.data).encode()
        return _source(document, overrides, base, text)
    name = os.fspath(given)
    if name.startswith("@"):
        path = shipped.find("scenarios", name)
        return _source(read_document(path), overrides, path.parent, path.read_bytes())
    path = Path(name)
    if not path.is_dir():
        return _source(read_document(path), overrides, path.absolute().parent, path.read_bytes())
    manifest = read_manifest(path)
    check_unchanged(manifest["outputs"] | {}, "a file", lambda file: path / file)
    source = _source(read_document(path / RESOLVED), overrides, path, (path / INPUT).read_bytes())
    files = input_files(source.scenario, path)
    check_unchanged({name: digest for name, digest in manifest["inputs"].items() if name in files}, "an input", files.__getitem__)
    return source


def _source(document: Document, overrides: Iterable[str | Override], base: Path, text: bytes) -> Source:
    return Source(resolved(validate(Scenario, document, overrides), base), text)
