"""`simnmt run`, `compare`, `init` and `schema`: run scenarios, compare runs, write a scenario, print the schema."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simnmt.base.files import is_standard
from simnmt.cli.options import (
    AsJson,
    Changes,
    Force,
    MostJobs,
    Page,
    argument,
    check_output,
    grouped,
    option,
    print_json,
    print_page,
    print_result,
    prints_of_users,
)
from simnmt.cli.terminal import describe_output, note, progress_bar, warn

if TYPE_CHECKING:
    from simnmt.results.comparison import Comparison
    from simnmt.results.run import Run


MOST_KEYS = 40
"""Most keys of scenarios that are printed; `--json` and the page have all."""
MOST_CHARACTERS = 40
"""Most characters of a value of a key on a terminal."""


Engine = Literal["compiled", "reference"]
_ASSERTION = "Exit with status 3 if the recommended policy, or that of 'POLICY: p95_ms<=300', misses this."
_TEMPLATES = """quickstart, batched-cloud, capacity, live-smoke, load-sweep, open-loop, own-data, sti-gateway, table1,
table1-measured or tiers."""


@dataclass(frozen=True, slots=True)
class RunChanges(Changes):
    """As `Changes`, and the number of drawn profiles."""

    profile_uncertainty: Annotated[int | None, option("N", "Draw 20 to 2000 profiles, for prediction intervals.")] = None


@grouped
def run(
    changes: RunChanges,
    scenario: Annotated[str, argument("SCENARIO|@NAME|RUN_DIR", "A file or -, a shipped scenario, or a run to repeat.")],
    out: Annotated[Path | None, option("DIR", "Run directory to write. [default: a new one under reports/]")] = None,
    jobs: MostJobs = 0,
    engine: Annotated[Engine | None, option(None, "Engine of the world. [default: compiled where it covers the run]")] = None,
    assertions: Annotated[list[str] | None, option("REQUIREMENT", _ASSERTION, "--assert")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Replay a workload through every policy of a scenario.

    Example: simnmt run @open-loop --set devices.cloud.count=2
    """
    import simnmt.api
    from simnmt.world.structures import library

    overrides = changes.values
    with progress_bar() as bar, prints_of_users():
        result = simnmt.api.run(
            scenario,
            out=out,
            under=None if out else "reports",
            overrides=overrides,
            jobs=jobs or None,
            progress=bar.runs,
            engine=engine,
            assertions=assertions or [],
            allow_code=changes.allow_code,
            force=force,
        )
    if engine is None and library() is None:
        note("the reference ran, some 100 times as slow as the compiled engine (run `python -m simnmt.base.compile`)")
    assessments = [assessment for text in assertions or [] for assessment in result.assess(text)]
    asserted = {"assertions": [assessment.as_json() for assessment in assessments]} if assertions else {}
    print_run(result, as_json, asserted)
    for assessment in assessments if not as_json else ():
        print(f"assert {assessment}")
    if not all(assessment.met for assessment in assessments):
        raise typer.Exit(3)


def print_run(result: Run, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print the warnings of a written run, then its text, or its document with `more`."""
    from simnmt.cli.run_text import format_result

    for warning in result.warnings:
        warn(warning)
    if as_json:
        print_json(result.document() | (more or {}) | {"directory": str(result.directory)})
    else:
        print(f"{format_result(result)}\n\nrun directory: {result.directory}\npage: {result.directory}/report.html")


def compare(
    runs: Annotated[list[Path], argument("RUN...", "Run directories, two or more; the others are compared with the first.")],
    page: Page = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare finished runs by their scenarios and latencies.

    Shows the keys that differ, changes of the mean latency with their intervals, and the best policy of each run.

    Example: simnmt compare first far-away --page comparison.html
    """
    import simnmt.api
    from simnmt.report.study_pages import render_comparison
    from simnmt.results.run_directory import MANIFEST, OUTPUTS

    check_output(page, force, *(run / name for run in runs for name in (MANIFEST, *sorted(OUTPUTS))))
    comparison = simnmt.api.compare(*runs)
    print_result(as_json, comparison.document, lambda: format_comparison(comparison))
    print_page(page, as_json, lambda: render_comparison(comparison))


def format_comparison(comparison: Comparison) -> str:
    """Return the text of a comparison: differing keys, changes, best policies, and what they rest on."""
    from simnmt.report.study_pages import best_table, changes_table, differences_table
    from simnmt.results.comparison import NOTHING

    changes, keys = changes_table(comparison), len(comparison.scenario_differences)
    most = MOST_CHARACTERS if sys.stdout.isatty() else None
    parts = [
        f"{comparison.title}:",
        differences_table(comparison, most).to_text(most=MOST_KEYS) if keys else "The scenarios do not differ.",
        f"and {keys - MOST_KEYS} more keys (--json and --page have all)" if keys > MOST_KEYS else "",
        changes.to_text() if comparison.changes else f"The runs have {NOTHING}.",
        changes.note if comparison.changes else "",
        best_table(comparison).to_text() if comparison.best else "",
        "\n".join(comparison.notes),
    ]
    return "\n\n".join(filter(None, parts))


def init(
    path: Annotated[Path, argument("[PATH]", "File to write; - for standard output.")] = Path("scenario.yaml"),
    template: Annotated[str, option("NAME", _TEMPLATES)] = "quickstart",
    force: Force = False,
) -> None:
    """Write a commented scenario that runs, and the schema that editors check it with.

    Example: simnmt init --template tiers tiers.yaml
    """
    from simnmt.scenario.template import write_template

    check_output(path, force)
    done = describe_output(path)
    for written in write_template(template, path, replace=force):
        print(done if written == path else f"wrote {written}")
    if not is_standard(path):
        print(f"run it: simnmt run {path}")


def schema() -> None:
    """Print the JSON Schema of scenario files.

    Example: simnmt schema > scenario.schema.json
    """
    from simnmt.scenario.template import schema_text

    print(schema_text(), end="")
