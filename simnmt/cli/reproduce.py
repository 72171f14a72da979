"""`simnmt reproduce`: one verb per paper, which writes its tables, claims and figures beside ours."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from simnmt.cli.app import Verb
from simnmt.cli.options import AsJson, Force, Jobs, option, print_result
from simnmt.cli.terminal import progress_bar, say, warn
from simnmt.papers import PAPERS

if TYPE_CHECKING:
    from simnmt.papers.kit.rendering import Report

app = typer.Typer(help="The papers' tables as published, and ours beside them.", no_args_is_help=True)

Out = Annotated[Path | None, option("DIR", "Folder for page and JSON. [default: a new one under reports/]", "--out")]
SHARED = {"out": (Out, None), "jobs": (Jobs, 0), "force": (Force, False), "as_json": (AsJson, False)}
"""Type and default of the options that are declared here: `jobs` for papers that take it, the others for all."""


class PaperVerb(Verb):
    """The verb of a paper: its options are those of the paper's `reproduce`, which is imported when the verb is called."""

    @cached_property
    def loaded(self) -> Any:
        """The command."""
        one = typer.Typer(add_completion=False)
        one.command(cls=Verb)(_verb_of(str(self.name)))
        return typer.main.get_command(one)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the paper's options and those of all verbs."""
        return [*self.loaded.params, *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Run the reproduction."""
        return self.loaded.invoke(ctx)


def _verb_of(paper: str) -> Callable[..., None]:
    """Return the function of a paper's verb: its parameters are those of the paper's `reproduce`, and those of the output.

    A `reproduce` may take `progress`, called with the work done, all work and a title, or `say`, called with each stage.
    """
    reproduce = importlib.import_module(PAPERS[paper].module).reproduce
    declared = dict(inspect.signature(reproduce, eval_str=True).parameters)
    names = ["out", *(name for name in declared if name not in ("progress", "say")), "force", "as_json"]

    def run(out: Path | None, force: bool, as_json: bool, **given: Any) -> None:
        from simnmt.results import run_directory as files

        if "jobs" in given:
            given["jobs"] = given["jobs"] or os.cpu_count() or 1
        if out is not None:
            files.check_free(out, replace=force)
        with nullcontext(out) if out is not None else files.reserved(Path("reports"), f"reproduce-{paper}") as directory:
            with progress_bar() as bar:
                # Where there is no terminal, a stage is a line of standard error.
                callbacks = {"progress": bar.runs, "say": bar.stage if bar.is_drawn else say}
                report: Report = reproduce(**given, **{name: call for name, call in callbacks.items() if name in declared})
            warn(*report.warnings)
            document = report.document()
            with files.whole(directory, replace=force) as folder:
                (folder / files.PAGE).write_text(report.page(), encoding="utf-8")
                files.write_json(folder / files.REPRODUCTION, document)
        page = f"page: {directory / files.PAGE}"
        print_result(as_json, lambda: document | {"directory": str(directory)}, lambda: f"{report.text()}\n\n{page}")

    parameters = []
    for name in names:
        annotation, default = SHARED.get(name) or (declared[name].annotation, declared[name].default)
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


for verb, reproduction in PAPERS.items():
    app.command(verb, cls=PaperVerb, help=reproduction.help)(lambda: None)
