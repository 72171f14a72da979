"""Open a scenario from a file, a shipped `@name`, a run directory to repeat, or a mapping, and check it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simnmt.base import shipped_files
from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.extension import Extension, UserCode, extensions_in
from simnmt.results.run_directory import INPUT, RESOLVED, RunDirectoryError, check_unchanged, read_manifest, sha256
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document, Override, apply_overrides, document_of, read_document
from simnmt.scenario.errors import ScenarioError, describe_value, format_location
from simnmt.scenario.topology import check_scores, check_topology
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document
from simnmt.workload.arrivals import BackToBack


def describe_separate_runs(scenario: ScenarioConfiguration) -> str:
    """Describe that several workloads share no device and no link; empty if at most one has requests that may meet."""
    meeting = [part for part in scenario.workloads.values() if not isinstance(part.arrivals, BackToBack)]
    if scenario.shares_devices or len(meeting) < 2:
        return ""
    return (
        f"the {len(scenario.workloads)} workloads are separate runs: each has all devices and links to itself, and their rates "
        "do not add up to one load"
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario, checked and with absolute paths, with its original text."""

    scenario: ScenarioConfiguration
    document: Document
    """The scenario as given, with the overrides applied, in which errors find their line."""
    text: bytes
    resolved_text: str
    """The scenario with every default, override and absolute path written out."""
    base: Path = field(default_factory=Path.cwd)
    """Folder at which relative paths of further overrides start."""

    def with_overrides(
        self, overrides: Iterable[Override], *, allow_code: bool = False
    ) -> tuple[ScenarioConfiguration, Document]:
        """Return the scenario with further overrides, checked and with absolute paths, and its document.

        Raises `ScenarioError`.
        """
        document = apply_overrides(self.document, overrides)
        scenario = _checked_scenario(document, self.base, allow_code)
        check_scores(scenario, self.scenario, document)
        return scenario, document

    @property
    def extensions(self) -> dict[str, Extension]:
        """What users bring, by its place, such as `policies.mine`."""
        return {format_location(place): extension for place, extension in extensions_in(self.scenario)}

    @property
    def code_digests(self) -> dict[str, str]:
        """SHA-256 of each file of users' code that the scenario names."""
        codes = [extension.code for extension in self.extensions.values() if extension.code is not None]
        return {str(code.file): sha256(code.file) for code in codes if code.file is not None}

    @property
    def packages(self) -> dict[str, str]:
        """The versions of the installed packages whose kinds the scenario names, by their names."""
        codes = [extension.code for extension in self.extensions.values() if extension.code is not None]
        return dict(code.distribution for code in codes if code.distribution is not None)


def open_source(
    given: str | os.PathLike[str] | Mapping[str, object],
    overrides: Iterable[str | Override] = (),
    *,
    allow_code: bool = False,
    base: Path | None = None,
) -> Source:
    """Read and check a scenario; raise `ScenarioError`, or `RunDirectoryError` for a run directory that is not whole.

    Args:
        given: a file's path, a shipped `@name`, a run directory or a mapping.
        overrides: values in place of the scenario's.
        allow_code: whether modules and files that the scenario names may run, such as `kind: "package.module:MyPolicy"`.
        base: folder at which relative paths of a file start, if that is not the file's folder.

    Relative paths start at the scenario's folder. They start at the current folder for a mapping, a shipped scenario and a run
    directory; the paths of the latter two need no start, so only overrides have relative ones. A run directory gives its
    resolved scenario, provided that no file it read has changed since.
    """
    here = Path.cwd()
    if isinstance(given, Mapping):
        return _check_source(document_of(given), overrides, here, None, allow_code)
    if not isinstance(given, (str, os.PathLike)):
        remedy = "give a file's path, a shipped @name, a run directory, a mapping or a simnmt.Scenario"
        raise ScenarioError(f"expected a scenario, got {describe_value(given)}", remedy=remedy)
    name = os.fspath(given)
    if name.startswith("@"):
        path = shipped_files.find("scenarios", name)
        return _check_source(read_document(path), overrides, here, path, allow_code)
    path = Path(name)
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where the name is too long
        document, regular = read_document(path), path.is_file()
        base = base or (path.absolute().parent if regular else here)
        return _check_source(document, overrides, base, path if regular else None, allow_code)
    manifest = read_manifest(path)
    if "live" in manifest:
        what = "a live replay, which cannot be repeated from its files"
        raise RunDirectoryError(what, path=path, remedy=f"simulate its scenario: simnmt run {path / RESOLVED}")
    remedy = f"restore it, or run {path / RESOLVED}" if (path / RESOLVED).exists() else "run the scenario anew"
    check_unchanged(manifest["outputs"], "a file", lambda file: path / file, remedy)
    source = _check_source(read_document(path / RESOLVED), overrides, here, path / INPUT, allow_code)
    files = input_files(source.scenario, here) | {file: Path(file) for file in source.code_digests}
    read = {name: digest for name, digest in manifest["inputs"].items() if name in files}
    check_unchanged(read, "an input", files.__getitem__, remedy)
    return source


def _check_source(
    document: Document, overrides: Iterable[str | Override], base: Path, file: Path | None, allow_code: bool
) -> Source:
    """Check a document; `file`: the original of scenario.input.yaml, which is written from the document without one (a mapping,
    a pipe)."""
    text = write_document(document.data).encode() if file is None else file.read_bytes()
    document = apply_overrides(document, overrides)
    scenario = _checked_scenario(document, base, allow_code)
    return Source(scenario, document, text, write_document(scenario.document()), base)


def _checked_scenario(document: Document, base: Path, allow_code: bool) -> ScenarioConfiguration:
    folders = list(dict.fromkeys((str(base.absolute()), str(Path.cwd()))))
    scenario = validate(document, code=UserCode(folders, allow_code))
    check_topology(scenario, document)
    for location, extension in extensions_in(scenario):
        extension.place = document.error((*location, "kind") if extension.code else location, "")
    return with_absolute_paths(scenario, base)
