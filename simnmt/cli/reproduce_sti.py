"""`simnmt reproduce sti`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simnmt.cli.reproduce_options import AsJson, Out, directory_of, said, tell, write


def sti(
    out: Out = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option(
            "--study", metavar="FILE", help="Instead of the shipped ones; repeatable. With --store: where its study is kept."
        ),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            "--pipeline", metavar="FILE", help="Of `python -m benchmarks.sti_pipeline --out`, default: the shipped one."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="STORE", help="Shards of a trained classifier to study: minutes; with --task."),
    ] = None,
    task: Annotated[
        Path | None, typer.Option("--task", metavar="FILE.tsv", help="Examples that it was not trained on, to judge by.")
    ] = None,
    importance_task: Annotated[
        Path | None,
        typer.Option("--importance-task", metavar="FILE.tsv", help="Of --store: other examples, to rank its shards by."),
    ] = None,
    importance_on_task: Annotated[
        bool, typer.Option("--importance-on-task", help="Rank them on --task itself: its order then looks too good.")
    ] = False,
    profiles: Annotated[
        list[Path] | None,
        typer.Option("--profile", metavar="FILE", help="Of `simnmt sti profile`: its importance, and a device to plan for."),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="Of --store: measure this part, again if need be; repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Of --store: fewer deadlines, orders and examples.")] = False,
    as_json: AsJson = False,
) -> None:
    """Elastic pipelining (ASPLOS 2023): its claims, a trained classifier's study beside them, and pipelines drawn."""
    from simnmt.report.sti_page import render_sti
    from simnmt.reproduce.sti.reproduction import reproduce
    from simnmt.reproduce.sti.studying import Studied
    from simnmt.reproduce.sti.tables import document as document_of
    from simnmt.reproduce.sti.text import as_text

    studied = Studied(store, task, importance_task, importance_on_task, tuple(profiles or ()), tuple(parts or ()), quick)
    with directory_of(out, "sti") as directory:
        with said() as say:
            found = reproduce(studies=studies, pipeline=pipeline, studied=studied, say=say)
        document = document_of(found)
        write(directory, document, render_sti(document))
    tell(directory, document, as_text(found), as_json)
