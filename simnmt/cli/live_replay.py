"""`simnmt live replay`: a scenario's requests, sent to a live gateway or server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from simnmt.base.packages import named_if_missing
from simnmt.cli.live_serve import TOKEN, Source, TargetLanguage, read_token
from simnmt.cli.options import (
    AllowCode,
    AsJson,
    Force,
    Overrides,
    argument,
    flag,
    option,
    parse_duration,
    print_json,
    prints_of_users,
)
from simnmt.cli.progress import progress_bar
from simnmt.cli.terminal import note, warn


def replay(
    scenario: Annotated[str, argument("SCENARIO|RUN_DIR", "The workload, its arrivals, and the devices of the service.")],
    gateway: Annotated[str, option("URL", "The gateway; or a server, which stands for one device.")],
    token_file: Annotated[
        Path | None, option("FILE", f"Token that the service asks for; else that of ${TOKEN}.", "--token-file")
    ] = None,
    ca_file: Annotated[
        Path | None, option("FILE", "Certificate of the authority that signed that of an https:// service, PEM.")
    ] = None,
    requests: Annotated[
        int | None, option("N", "Requests per replication. [default: the scenario's]", show_default=False)
    ] = None,
    replications: Annotated[int, option("R", "Repeats, one after another.", min=1)] = 1,
    seed: Annotated[int | None, option("S", "Of lengths and arrivals. [default: the scenario's, else 1]")] = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    workload: Annotated[str | None, option("NAME", "Workload that is replayed. [default: the first]")] = None,
    text: Annotated[
        Path | None, option("FILE", "Send its lines in turn, and let the model end them, in place of the workload's lengths.")
    ] = None,
    device: Annotated[str | None, option("NAME", "Device that a server stands for. [default: by its engine]")] = None,
    source: Source = "de",
    target: TargetLanguage = "en",
    timeout: Annotated[
        float,
        option(
            "TIME", "Time within which a request must be answered. [default: 60s]", parser=parse_duration, show_default=False
        ),
    ] = 60.0,
    connections: Annotated[int, option("N", "Most requests under way; others wait here.", min=1, max=100_000)] = 500,
    delays: Annotated[
        bool, flag("--delays", "Sleep the delays of the scenario's network before and after each request.")
    ] = False,
    out: Annotated[Path | None, option("DIR", "Run directory to write. [default: a new one under reports/]")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Send a scenario's requests to a live gateway by the workload's arrivals, and measure them as a run.

    Example: simnmt live replay @live-smoke --gateway http://127.0.0.1:5000 --requests 500
    """
    with named_if_missing("live"):
        from simnmt.live.replay import ReplaySettings, read_texts
    import simnmt.api
    from simnmt.cli.run_text import format_result
    from simnmt.scenario.document import overrides_of_call

    settings = ReplaySettings(
        gateway,
        read_token(token_file, TOKEN),
        ca_file,
        source,
        target,
        None if text is None else read_texts(text),
        workload,
        device,
        timeout,
        connections,
        delays,
    )
    given = overrides_of_call(overrides or [], as_options=True, requests=requests, replications=replications, seed=seed)
    with progress_bar() as bar, prints_of_users():
        result = simnmt.api.replay(
            simnmt.api.Scenario(scenario, given, allow_code=allow_code),
            settings,
            out=out,
            under=None if out else "reports",
            announce=bar.say if bar.is_drawn else note,
            progress=lambda done, total: bar.runs(done, total, "requests"),
            force=force,
        )
    for warning in result.warnings:
        warn(warning)
    if as_json:
        print_json(result.document() | {"directory": str(result.directory)})
    else:
        print(format_result(result))
        print(f"\nrun directory: {result.directory}\npage: {result.directory}/report.html")
