"""The verbs on scenarios and runs: run, compare, sweep, plan, init and schema."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simnmt.base.compile import compile_remedy
from simnmt.base.errors import InputError, SimnmtError
from simnmt.base.files import is_standard, written_whole
from simnmt.cli.options import (
    VALUES,
    AsJson,
    Changes,
    Force,
    MostJobs,
    Page,
    argument,
    check_output,
    grouped,
    option,
    parse_duration,
    print_json,
    print_page,
    print_result,
    prints_of_users,
    share_option,
)
from simnmt.cli.terminal import describe_output, note, progress_bar, say, warn

if TYPE_CHECKING:
    from simnmt.experiment.capacity import Capacities
    from simnmt.experiment.cases import Case
    from simnmt.experiment.deployment import Candidate, DeploymentPlan
    from simnmt.experiment.sweep import SweepResult
    from simnmt.results.comparison import Comparison
    from simnmt.results.run import Run
    from simnmt.workload.arrivals.traffic import Peak

MOST_KEYS = 40
"""Most keys of scenarios that are printed; `--json` and the page have all."""
MOST_CHARACTERS = 40
"""Most characters of a value of a key on a terminal."""


Engine = Literal["compiled", "reference"]
_ASSERTION = """Exit with status 3 if the recommended policy misses this; with 'POLICY: p95_ms<=300', that policy, and with
'class NAME: p95_ms<=300' or 'WORKLOAD: ...', there alone."""
_TEMPLATES = """quickstart, batched-cloud, capacity, live-service, live-smoke, llama-slots, load-sweep, open-loop, own-data,
sti-gateway, table1, table1-measured, three-offices or tiers."""


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
    slow = "the reference ran, some 100 times as slow as the compiled engine"
    if engine is None and library() is None:
        note(f"{slow} ({compile_remedy()})")
    elif engine is None and result.engine_reasons:
        note(f"{slow}: {'; '.join(dict.fromkeys(result.engine_reasons.values()))}")
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

    warn(*result.warnings)
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


MOST_FAILURES = 10
"""Most errors of failed points that are printed; failed.json has all."""
MOST_POINTS = 30
"""Most points of a sweep with caches that are printed; the page has more."""


class PartlyEnded(SimnmtError):
    """A sweep of which some points failed."""

    exit_status = 4


@grouped
def sweep(
    changes: Changes,
    given: Annotated[str, argument("SCENARIO|DIR", "A scenario takes --grid; the folder of a sweep goes on.")],
    grid: Annotated[list[str] | None, option("KEY=VALUES", f"{VALUES} May be repeated.")] = None,
    out: Annotated[Path | None, option("DIR", "Folder to write. [default: a new one under reports/]")] = None,
    jobs: MostJobs = 0,
    cluster: Annotated[str | None, option("tcp://HOST:PORT", "Dask scheduler whose workers run the points.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario at many points of its keys; a sweep that stopped goes on by the name of its folder.

    Example: simnmt sweep @open-loop --grid devices.cloud.workers=1,2 --grid workloads.de-en.arrivals.rate_rps=5:11:4
    """
    from simnmt.api import sweep as run_sweep
    from simnmt.scenario.varied_keys import parse_varied_key

    overrides = changes.values
    with progress_bar() as bar, prints_of_users():
        result = run_sweep(
            given,
            grid=[parse_varied_key(text, "--grid") for text in grid or []],
            out=out,
            overrides=overrides,
            jobs=jobs or None,
            cluster=cluster,
            progress=lambda done, total: bar.runs(done, total, "points"),
            allow_code=changes.allow_code,
            announce=say,
        )
    print_result(as_json, result.document, lambda: format_sweep(result))
    if result.failures:
        for failure in result.failures[:MOST_FAILURES]:
            warn(f"point {failure.point}: {failure.error}")
        counts = f"{result.table.failed} of {result.points} points failed; the others are in the table"
        raise PartlyEnded(f"{counts} (try again: simnmt sweep {result.directory})")


def format_sweep(result: SweepResult) -> str:
    """Return the text of a sweep that has ended: how often each policy is best, caches by point, and where the table is."""
    from simnmt.base.text_tables import format_table
    from simnmt.report.study_pages import has_caches, points_table
    from simnmt.results.metrics import unanswered_share
    from simnmt.results.places import wholes
    from simnmt.results.sweep_table import BEST, BOUND, EQUAL, PAGE, TABLE, TIED, UNSTABLE, WORSE

    table = result.table
    of_all = [row for of_cell in wholes(table.rows).values() for row in of_cell]
    standings = Counter((row["policy"], row["standing"]) for row in of_all)
    policies = list(dict.fromkeys(row["policy"] for row in of_all if row["standing"] != BOUND))
    bounds = list(dict.fromkeys(row["policy"] for row in of_all if row["standing"] == BOUND))
    shown = {BEST: "best", EQUAL: "as good", TIED: "not distinguishable from it", WORSE: "worse", UNSTABLE: "unstable"}
    rows = [[policy, *(str(standings[policy, standing]) for standing in shown)] for policy in policies]
    best = [row for row in of_all if row["standing"] == BEST]
    missing = sum(row["slo_met"] == 0.0 for row in best)
    losses = [share for share in map(unanswered_share, best) if share]
    lines = [
        f"{result.points} point{'s' * (result.points != 1)} of {', '.join(table.keys)}",
        f"\nBy {table.objective}, policies are so often (each point counts for each workload and network):\n"
        f"{format_table(['policy', *shown.values()], rows)}\n"
        if rows
        else "",
        f"Left out: {', '.join(bounds)}, a bound that cannot be deployed (the table has its numbers)." if bounds else "",
        f"In {missing} of {len(best)} cases the best policy misses the service level, as all do." if missing else "",
        f"In {len(losses)} of {len(best)} cases the best policy does not answer requests, up to {100.0 * max(losses):.2g} %."
        if losses
        else "",
        f"{points_table(table).to_text(most=MOST_POINTS)}\n" if has_caches(table) else "",
        f"table: {result.directory / TABLE}\npage: {result.directory / PAGE}",
    ]
    return "\n".join(filter(None, lines))


_RATE = (
    "Requests/s, or 5e6characters/day or 2e6requests/month, to find the least deployment for; or those of the busiest TIME "
    "(such as 1m) of a log."
)
Minimised = Literal["servers", "cost", "energy", "latency"]
MISSED = 3
"""Exit status if no deployment keeps the service level."""
UNSAVED = "SCENARIO.yaml"
"""What commands call a scenario from standard input, which no file holds."""
MODEL = "your translation model, since the profile of the device was not measured with one that simnmt can load"


@dataclass(frozen=True, slots=True)
class PlanChanges(Changes):
    """As `Changes`; a plan without a rate adds replications until its interval is narrow enough."""

    replications: Annotated[int | None, option("R", "Repeats, without --rate the fewest. [default: the scenario's]")] = None


@grouped
def plan(
    changes: PlanChanges,
    scenario: Annotated[str, argument("SCENARIO|@NAME", "A file or -, or a shipped scenario.")],
    slo: Annotated[list[str] | None, option("LEVEL", "Such as 'p95_ms<=300'; repeatable. [default: the scenario's]")] = None,
    rate: Annotated[str | None, option("R|peak:LOG:TIME", f"{_RATE} [default: find the rate]")] = None,
    minimise: Annotated[Minimised | None, option(None, "What is to be least at the rate. [default: servers]")] = None,
    vary: Annotated[list[str] | None, option("KEY=VALUES", f"{VALUES} [default: boxes of the last device]")] = None,
    precision: Annotated[float | None, share_option("Half width of the rate's interval that is enough. [default: 2%]")] = None,
    certainty: Annotated[float | None, share_option("Probability of the level that is enough. [default: 95%]")] = None,
    out: Annotated[Path | None, option("FILE", "Write the scenario of the choice, at the rate.")] = None,
    page: Page = None,
    force: Force = False,
    jobs: Annotated[int, option("J", "Processes (one with --rate); 0: one per processor.", min=0, max=1024)] = 1,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate under a service level or, for a rate, the least deployment.

    Example: simnmt plan @load-sweep --slo 'p95_ms<=300'
    """
    from simnmt.api import plan as find_plan
    from simnmt.experiment.capacity import Capacities
    from simnmt.report.study_pages import render_plan
    from simnmt.scenario.varied_keys import parse_varied_key
    from simnmt.scenario.yaml_text import write_document

    overrides = changes.values
    for path in (out, page):
        check_output(path, force, scenario)
    if out is not None and rate is None:
        raise InputError("--out writes the deployment that is found for a rate", remedy="give --rate, or leave --out out")
    with progress_bar() as bar, prints_of_users():
        answer = find_plan(
            scenario,
            slo or (),
            rate=None if rate is None else parse_wanted_rate(rate),
            minimise=minimise,
            vary=[parse_varied_key(text, "--vary") for text in vary or []],
            overrides=overrides,
            precision=precision,
            certainty=certainty,
            jobs=jobs or None,
            progress=bar.runs,
            allow_code=changes.allow_code,
        )
    if out is not None and not isinstance(answer, Capacities) and answer.is_met:
        with written_whole(out) as partial:
            partial.write_text(write_document(answer.scenario.document()), encoding="utf-8")
    warn(*answer.warnings)
    print_result(as_json, answer.document, lambda: format_answer(answer, scenario, out))
    print_page(page, as_json, lambda: render_plan(answer))
    if not answer.is_met:
        raise typer.Exit(MISSED)


def parse_wanted_rate(text: str) -> str | Peak:
    """Return the rate of a plan as `simnmt.plan` takes it: a text, or the peak of a log given as `peak:LOG:TIME`."""
    from simnmt.workload.arrivals.traffic import read_peak

    if text.startswith("peak:"):
        log, _, window = text.removeprefix("peak:").rpartition(":")
        if log:
            return read_peak(log, parse_duration(window))
    return text


def format_answer(plan: Capacities | DeploymentPlan, scenario: str, out: Path | None) -> str:
    """Return the text of a plan. `scenario`: as the user named it; `out`: the file to which the choice is written."""
    from simnmt.experiment.capacity import Capacities
    from simnmt.report.study_pages import capacities_table, describe_answer

    lines = [plan.sources, "", *describe_answer(plan)]
    if isinstance(plan, Capacities):
        lines = [f"{plan.name}: highest rate with {plan.level}", *lines, "", capacities_table(plan).to_text()]
        return "\n".join(lines)
    lines.insert(0, f"{plan.name}: deployment for {plan.rate_rps:g} requests/s{plan.characters} with {plan.level}")
    if plan.choice is not None:
        written = None if out is None or is_standard(out) else str(out)
        commands = deploy_commands(plan, plan.choice, UNSAVED if is_standard(scenario) else scenario, written)
        lines += ["", "Deploy it:", *(f"  {command}" for command in commands)]
        if any(" --model " in command for command in commands):
            lines.append(f"MODEL: {MODEL}.")
        if written is not None:
            lines += ["", f"scenario: {written}"]
    return "\n".join(lines)


def deploy_commands(plan: DeploymentPlan, choice: Candidate, name: str, written: str | None) -> list[str]:
    """Return the commands that deploy a choice: a server for each box of every device but the first, and the gateway.

    `name`: the scenario as the user named it; `written`: the file to which the choice was written, None for none.
    """
    from simnmt.experiment.deployment import format_choice
    from simnmt.scenario.configuration import END_NODE
    from simnmt.scenario.errors import format_location

    devices = plan.scenario.devices
    if streamed := [device for device, part in devices.items() if part.sti is not None]:
        return [f"# services of your own, since {', '.join(streamed)} streams a model, which no live service of simnmt does"]
    given = shlex.quote(name if written is None else written)
    settings = [f"{format_location(part.location)}={format_choice(part.value)}" for part in choice.overrides]
    sets = "" if written is not None else "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    cases = choice.placements[0].plan.cases
    first, *others = devices
    commands = {
        name: f"simnmt live server {given} --device {name}{_model_option(name, cases, device.models is not None)}{sets}"
        for name, device in devices.items()
    }
    if not others:
        return [commands[first]]
    servers = [device for device in others if device in choice.placements[0].used]
    for device in servers:
        count, balancer = devices[device].count or 1, str(plan.scenario.balancer_of(device))
        if count > 1:
            attached = "one URL for each share of the end nodes"
            where = attached if balancer == "attached" else f"behind a load balancer at {_address(device)}"
            commands[device] += f"   # on each of {count} boxes, {where} (simulated: {balancer})"
    addresses = "".join(f" --server {device}={_address(device)}" for device in servers)
    gateway = f"simnmt live gateway {given} --policy {choice.policy}"
    nodes = "   # on every end node" if first == END_NODE else ""
    gateways = [f"{gateway}{_model_option(first, cases)}{addresses}{sets}{nodes}"]
    if sites := choice.placements[0].plan.sites:
        # A gateway serves one workload, and the devices of two sites may have other engines.
        gateways = [
            f"{gateway} --site {site.name} --workload {workload}{_model_option(first, {workload: case})}{addresses}{sets}"
            for site in sites
            if site.has_device
            for workload, case in site.cases.items()
        ]
    return [*(commands[device] for device in servers), *gateways]


def _model_option(device: str, cases: Mapping[str, Case], by_workload: bool = False) -> str:
    """Return the option for a device whose profiles name no model that simnmt can load; empty if they do."""
    profiles = {name: part.profile for name, case in cases.items() for part in case.targets if part.device == device}
    unknown = [name for name, profile in profiles.items() if profile.engine is None or not profile.engine.architecture]
    if by_workload:
        return "".join(f" --model {name}=MODEL" for name in unknown)
    return " --model MODEL" if unknown else ""


def _address(device: str) -> str:
    return f"http://{device.upper()}:5001"


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
    for written in write_template(template, path):
        print(done if written == path else f"wrote {written}")
    if not is_standard(path):
        print(f"run it: simnmt run {path}")


def schema() -> None:
    """Print the JSON Schema of scenario files.

    Example: simnmt schema > scenario.schema.json
    """
    from simnmt.scenario.template import schema_text

    print(schema_text(), end="")
