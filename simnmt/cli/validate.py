"""`simnmt validate`: hold simulations against live runs on this box."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simnmt.base.packages import named_if_missing
from simnmt.cli.live_serve import AnyModel
from simnmt.cli.options import AllowCode, AsJson, Overrides, argument, option, parse_share, print_result, prints_of_users
from simnmt.cli.terminal import note, warn

LEGEND = (
    "Simulated over live less 1, of means over the replications. Structural: with the executions and targets of the live run. "
    "Predicted: from the profiles alone. Spread: range of the live means over their mean. *: void, the box was disturbed."
)


def validate(
    scenario: Annotated[str, argument("SCENARIO|@NAME", "Its first workload is replayed, by its own arrivals.")],
    policies: Annotated[str | None, option("LIST", "Policies of the scenario. [default: all that can be deployed]")] = None,
    requests: Annotated[int | None, option("N", "Requests of each live run. [default: the scenario's]")] = None,
    replications: Annotated[int | None, option("R", "Live runs of each policy, interleaved. [default: the scenario's]")] = None,
    seed: Annotated[int | None, option("S", "Of requests and order. [default: the scenario's, else 1]")] = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    any_model: AnyModel = False,
    within: Annotated[
        float | None, option("P%", "End with status 3 if a structural error of a mean is greater.", parser=parse_share)
    ] = None,
    out: Annotated[Path | None, option("DIR", "Folder of the results. [default: a new one under reports/]")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario live on this box, simulate the same requests with the measured executions and from the profiles, compare.

    Example: simnmt validate @live-smoke --requests 50
    """
    with named_if_missing("live"):
        from simnmt.live.validation import HEADER, describe_validation, format_validation, table_rows
        from simnmt.live.validation import validate as run_validation
    from simnmt.experiment.inputs import read_inputs
    from simnmt.report.page_template import Section, render_page, write_page
    from simnmt.report.table import Table
    from simnmt.results.run_directory import check_free, reserved
    from simnmt.scenario.document import overrides_of_call
    from simnmt.scenario.source import open_source

    given = overrides_of_call(overrides or [], as_options=True, requests=requests, replications=replications, seed=seed)
    if out is not None:
        check_free(out)
    with prints_of_users():
        source = open_source(scenario, given, allow_code=allow_code)
        plan = read_inputs(source.scenario, Path.cwd(), source.document)
        names = policies.split(",") if policies else ()
        validation = run_validation(plan, policies=names, any_model=any_model, progress=note)

    def write(folder: Path) -> None:
        (folder / "validation.json").write_text(json.dumps(validation.document(), indent=1) + "\n", encoding="utf-8")
        table = Table.of_texts("", HEADER, list(table_rows(validation)), words=2, id="errors")
        section = Section(
            "Errors of the simulations", text=[LEGEND], tables=[table], notes=list(describe_validation(validation))
        )
        write_page(folder / "validation.html", render_page("simnmt validate", validation.scenario, [section]))
        note(f"wrote {folder}/validation.html")

    print_result(as_json, validation.document, lambda: format_validation(validation))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write(out)
    else:
        with reserved(Path("reports"), "validation") as folder:
            write(folder)
    if within is not None and validation.worst_structural_error > within:
        warn(f"a structural error of {100 * validation.worst_structural_error:.2f} %, more than --within {100 * within:g} %")
        raise typer.Exit(3)
