"""What the verbs of `simnmt reproduce` have in common: options, and the folder that each writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for page and JSON; default: a new one under reports/.")
]
Profiles = Annotated[
    list[str] | None, typer.Option("--profile", metavar="FILE|@NAME", help="Instead of the shipped ones; repeatable.")
]
Sentences = Annotated[
    int | None, typer.Option("--requests", metavar="N", help="Sentences timed at most, of each set and online run.")
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="J", min=0, help="Processes; 0: one per processor.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def by_label(option: str, given: Sequence[str] | None) -> dict[str, Path]:
    """Files by what stands before `=`. Raises `InputError` for one without a label, and for a label given twice."""
    from simnmt.errors import InputError

    found: dict[str, Path] = {}
    for each in given or ():
        label, equals, path = each.partition("=")
        if not (label and equals and path):
            raise InputError(f"{option} {each}: no LABEL=FILE", remedy=f"name the direction first: {option} fr-en={each}")
        if label in found:
            raise InputError(f"{option}: {label} twice", remedy="give one file a direction")
        found[label] = Path(path)
    return found


@contextmanager
def said() -> Iterator[Callable[[str], None]]:
    """Gives what is to be told of what comes next, on standard error: in one place on a terminal, else a line each."""
    from simnmt.cli.progress import stages

    with stages() as tell_stage:
        if tell_stage is None:
            yield lambda what: print(what, file=sys.stderr, flush=True)
        else:
            yield lambda what: tell_stage(what, None)


@contextmanager
def directory_of(out: Path | None, paper: str) -> Iterator[Path]:
    """The folder to write, known to be free and writable; without a name, a new one under reports/."""
    from simnmt.results.run_directory import check_free, reserved

    if out is not None:
        check_free(out)
        yield out
    else:
        with reserved(Path("reports"), f"reproduce-{paper}") as directory:
            yield directory


def write(directory: Path, document: dict[str, Any], page: str) -> None:
    """Page and document, whole or not at all."""
    from simnmt.results import run_directory as files

    with files.whole(directory) as folder:
        (folder / files.PAGE).write_text(page, encoding="utf-8")
        files.write_json(folder / "reproduction.json", document)


def tell(directory: Path, document: dict[str, Any], text: str, as_json: bool) -> None:
    """On standard output: the document, or the text and where the page is."""
    from simnmt.results.run_directory import PAGE

    if as_json:
        print(json.dumps(document | {"directory": str(directory)}, indent=1, allow_nan=False))
    else:
        print(f"{text}\n\npage: {directory / PAGE}")
