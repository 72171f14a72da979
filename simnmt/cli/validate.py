"""`simnmt validate`: hold simulations against live runs on this box."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnmt.base.packages import named_if_missing
from simnmt.cli.live import AnyModel
from simnmt.cli.options import AsJson, Changes, argument, grouped, option, print_result, prints_of_users, share_option
from simnmt.cli.terminal import note, warn

if TYPE_CHECKING:
    from simnmt.live.validation import Validation

LEGEND = (
    "Simulated over live less 1, of means over the replications. Structural: with the executions and targets of the live run. "
    "Predicted: from the profiles alone. Spread: range of the live means over their mean. *: void, the box was disturbed."
)


@grouped
def validate(
    changes: Changes,
    scenario: Annotated[str, argument("SCENARIO|@NAME", "Its first workload is replayed, by its own arrivals.")],
    policies: Annotated[str | None, option("LIST", "Policies of the scenario. [default: all that can be deployed]")] = None,
    any_model: AnyModel = False,
    within: Annotated[float | None, share_option("End with status 3 if a structural error of a mean is greater.")] = None,
    out: Annotated[Path | None, option("DIR", "Folder of the results. [default: a new one under reports/]")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario live on this box, simulate the same requests with the measured executions and from the profiles, compare.

    Example: simnmt validate @live-smoke --requests 50
    """
    with named_if_missing("live"):
        from simnmt.live.validation import validate as run_validation
    from simnmt.experiment.inputs import read_inputs
    from simnmt.report.page_template import Section, render_page, write_page
    from simnmt.report.table import Table
    from simnmt.results.run_directory import check_free, reserved
    from simnmt.scenario.source import open_source

    overrides = changes.values
    if out is not None:
        check_free(out)
    with prints_of_users():
        source = open_source(scenario, overrides, allow_code=changes.allow_code)
        plan = read_inputs(source.scenario, Path.cwd(), source.document)
        names = policies.split(",") if policies else ()
        validation = run_validation(plan, policies=names, any_model=any_model, progress=note)
    table = Table.of_texts("", _HEADER, list(_table_rows(validation)), words=2, id="errors")
    sentences = list(_describe_validation(validation))
    print_result(as_json, validation.document, lambda: "\n".join([table.to_text(), "", *sentences]))
    section = Section("Errors of the simulations", text=[LEGEND], tables=[table], notes=sentences)
    with nullcontext(out) if out is not None else reserved(Path("reports"), "validation") as folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "validation.json").write_text(json.dumps(validation.document(), indent=1) + "\n", encoding="utf-8")
        write_page(folder / "validation.html", render_page("simnmt validate", validation.scenario, [section]))
        note(f"wrote {folder}/validation.html")
    if within is not None and validation.worst_structural_error > within:
        warn(f"a structural error of {100 * validation.worst_structural_error:.2f} %, more than --within {100 * within:g} %")
        raise typer.Exit(3)


_HEADER = ("network", "policy", "live ms", "spread %", *("structural %", "p50 %", "p95 %"), *("predicted %", "p50 %", "p95 %"),
          "offloaded % live", "predicted")  # fmt: skip


def _table_rows(validation: Validation) -> Iterator[list[str]]:
    """Yield the cells of each comparison, under `_HEADER`."""
    for row in validation.rows:
        errors = [row.structural.errors(row.live), row.predicted.errors(row.live)]
        yield [
            row.network,
            row.policy + "*" * row.void,
            f"{1e3 * row.live.mean_s:.1f}",
            "-" if isnan(row.spread.mean_s) else f"{100 * row.spread.mean_s:.1f}",
            *(f"{100 * getattr(error, name):+.1f}" for error in errors for name in ("mean_s", "p50_s", "p95_s")),
            f"{100 * row.live.offloaded_share:.1f}",
            f"{100 * row.predicted.offloaded_share:.1f}",
        ]


def _describe_validation(validation: Validation) -> Iterator[str]:
    """Yield the sentences below the table: rankings and voids."""
    for ranking in validation.rankings:
        if not ranking.live:
            yield f"{ranking.network}: every run is void, so that nothing is ranked"
            continue
        pairs = "; ".join(f"{better} before {worse}" for better, worse in ranking.inverted) or "none"
        yield (
            f"{ranking.network}: live {' < '.join(ranking.live)}; predicted {' < '.join(ranking.predicted)}; "
            f"pairs clearly apart live and inverted in the prediction: {pairs}"
        )
    for row in validation.rows:
        if row.voids:
            what = "void, and shown over all its runs" if row.void else f"{len(row.voids)} runs left out"
            yield f"{row.policy} on {row.network}: {what}: {'; '.join(dict.fromkeys(row.voids))}"
