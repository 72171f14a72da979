"""`simnmt live` and `simnmt validate`: servers, gateways, replays of a workload, and simulations held against live runs."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from simnmt.base.errors import InputError, shorten
from simnmt.cli.batching_option import parse_batching
from simnmt.cli.calibrate import Backend
from simnmt.cli.options import (
    AsJson,
    Changes,
    Force,
    Overrides,
    argument,
    flag,
    given,
    grouped,
    option,
    parse_bytes,
    parse_integers,
    print_result,
    prints_of_users,
    share_option,
    time_option,
)
from simnmt.cli.scenarios import print_run
from simnmt.cli.terminal import note, progress_bar, warn

if TYPE_CHECKING:
    from simnmt.experiment.cases import RunPlan
    from simnmt.live.gateway import LiveGateway
    from simnmt.live.server import Engine, FrontSettings, LiveServer
    from simnmt.service.apis import Api

app = typer.Typer(help="A live testbed: real servers and gateways, and replays of a workload.", no_args_is_help=True)

TOKEN, SERVER_TOKEN, LOCAL_TOKEN = "SIMNMT_TOKEN", "SIMNMT_SERVER_TOKEN", "SIMNMT_LOCAL_TOKEN"

_PAIR = re.compile(r"([A-Za-z_]{2,20}-[A-Za-z_]{2,20})=(.+)")
_MODEL = "As for calibrate, or a trained model's folder; of a server one for each pair of languages, as de-en=PATH."

AnyModel = Annotated[bool, flag("--any-model", "Allow engines other than those of the profiles.")]
Source = Annotated[str, option("CODE", "Language that is translated.")]
Target = Annotated[str, option("CODE", "Language of the translations.")]
ApiOption = Annotated[
    list[str] | None,
    option("DEVICE=API", "What a service speaks: libretranslate, openai or openai:MODEL; repeatable.", "--api"),
]
CaFile = Annotated[Path | None, option("FILE", "Certificate of the authority that signed that of an https:// service, PEM.")]
Workload = Annotated[str | None, option("NAME", "Workload of the scenario. [default: the first]")]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is loaded, batched and placed; None where the profile or `EngineSettings` decides."""

    model: Annotated[list[str] | None, option("[PAIR=]NAME|PATH", _MODEL, group="Engine")] = None
    backend: Annotated[Backend | None, option(None, "Engine that computes. [default: torch]")] = None
    compute_type: Annotated[str | None, option("TYPE", "Such as float32 or int8. [default: float32]")] = None
    threads: Annotated[int | None, option("T", "CPU threads. [default: one for each core]", min=1)] = None
    beam: Annotated[int | None, option("B", "Hypotheses kept; 1 is greedy. [default: 1]", min=1, max=1000)] = None
    fused: Annotated[bool | None, flag("--fused", "Fuse bias, softmax and search.")] = None
    batching: Annotated[str | None, option("KIND:SIZE", "mini:8, maxi:8, top-up:8, slots:4. [default: one by one]")] = None
    prompt: Annotated[Path | None, option("FILE", "Prompt of a decoder-only model, with {text}.")] = None
    longest_wait: Annotated[float | None, time_option("How long the first sentence waits for company. [default: 0s]")] = None
    max_len: Annotated[int | None, option("N", "Most target tokens. [default: twice the source's and 10]", min=1)] = None
    src_lang: Annotated[str | None, option("CODE", "Language of the text as the model writes it: deu_Latn (NLLB).")] = None
    tgt_lang: Annotated[str | None, option("CODE", "Language of its translations, such as eng_Latn.")] = None
    cpus: Annotated[Any, option("N[,N]", "Processors that the engine uses. [default: any]", parser=parse_integers)] = None

    def settings(self, several: bool = False) -> dict[str, Any]:
        """Return the fields of `EngineSettings` that options give, without the model if it is one of several.

        Raises `InputError`.
        """
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        models = chosen.pop("model", [])
        if models and not several:
            if len(models) > 1 or _is_of_pair(models[0]):
                raise InputError("several models, or one of a pair", remedy="give one --model without a pair")
            chosen["model"] = models[0]
        if self.prompt is not None:
            chosen["prompt"] = _read_prompt(self.prompt)
        wait_s = chosen.pop("longest_wait", None)
        if self.batching is not None:
            chosen["batching"] = parse_batching(self.batching, wait_s or 0.0)
        elif wait_s is not None:
            raise InputError("--longest-wait without --batching", remedy="add --batching, such as mini:8")
        return chosen


def _is_of_pair(model: str) -> bool:
    return _PAIR.fullmatch(model) is not None and not Path(model).exists()


def _models_of_pairs(models: Sequence[str]) -> dict[str, str]:
    """Return the model of each pair of languages, such as `de-en`. Raises `InputError`."""
    by_pair: dict[str, str] = {}
    for text in models:
        match = _PAIR.fullmatch(text)
        if match is None:
            raise InputError(f"--model {shorten(text)} states no languages", remedy="write it as de-en=PATH")
        if match[1] in by_pair:
            raise InputError(f"--model {match[1]} is given twice", remedy="give one model for each pair")
        by_pair[match[1]] = match[2]
    return by_pair


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What clients of a service may do."""

    source: Annotated[str, option("CODE", "Language that is translated.", group="Clients")] = "de"
    target: Target = "en"
    listen: Annotated[str | None, option("HOST:PORT", "Port 0: any. [default: 127.0.0.1, 5001; gateway 5000]")] = None
    token_file: Annotated[Path | None, option("FILE", f"Token that clients must send; else that of ${TOKEN}.")] = None
    tls_cert: Annotated[Path | None, option("FILE", "Certificate, PEM.")] = None
    tls_key: Annotated[Path | None, option("FILE", "Its key, PEM.")] = None
    behind_proxy: Annotated[bool, flag("--behind-proxy", "A proxy before the service encrypts.")] = False
    allow_origin: Annotated[str | None, option("ORIGIN|*", "Origin of web pages whose scripts may ask. [default: none]")] = None
    forced_lengths: Annotated[bool, flag("--forced-lengths", "Let requests state their target tokens, to validate.")] = False
    max_waiting: Annotated[int, option("N", "Most texts under way; more are refused (429).", min=1, group="Limits")] = 256
    max_texts: Annotated[int, option("N", "Most texts of a request.", min=1)] = 100
    max_body: Annotated[int, option("SIZE", "Largest body in bytes (413).", parser=parse_bytes)] = 1_000_000
    deadline: Annotated[float, time_option("Longest time of a request (504). [default: 30s]")] = 30.0
    drain: Annotated[float, time_option("Longest time of requests under way at the end. [default: 30s]")] = 30.0
    log: Annotated[Path | None, option("FILE", "Append a line of JSON for each request.", group="Other")] = None

    def settings(self, default_address: str) -> FrontSettings:
        """Return what the options say about clients. Raises `InputError`."""
        from simnmt.live.server import FrontSettings
        from simnmt.service.http_server import Access, Limits, parse_address, read_token

        if self.max_body < 1:
            raise InputError("--max-body 0 refuses every request", remedy="give a size, such as 1MB")
        address, token = parse_address(self.listen or default_address, "--listen"), read_token(self.token_file, TOKEN)
        access = Access(address, token, self.tls_cert, self.tls_key, self.behind_proxy, self.allow_origin or "")
        access.ssl_context()  # refuses unusable files before the model is loaded
        pairs, limits = [(self.source, self.target)], Limits(self.max_body, drain_s=self.drain)
        return FrontSettings(pairs, self.max_texts, self.max_waiting, self.deadline, self.forced_lengths, access, limits)

    def open_log(self) -> AbstractContextManager[TextIO | None]:
        """Return the log to append lines to; None without one."""
        return nullcontext() if self.log is None else self.log.open("a", encoding="utf-8", buffering=1)


@app.command()
@grouped
def server(
    context: typer.Context,
    options: EngineOptions,
    service: ServiceOptions,
    changes: Overrides,
    scenario: Annotated[str | None, argument("[SCENARIO|RUN_DIR]", "Serve a device of it as its profile says.")] = None,
    device: Annotated[str | None, option("NAME", "Device of the scenario, else cpu or cuda. [default: the last; cpu]")] = None,
    memory_gb: Annotated[float | None, option("G", "Memory of several models. [default: all stay]", min=1e-3)] = None,
    any_model: AnyModel = False,
    as_json: AsJson = False,
) -> None:
    """Serve models behind LibreTranslate's API, until Ctrl-C or SIGTERM; requests under way are finished.

    Example: simnmt live server --model out/de-en --batching top-up:8 --listen 127.0.0.1:5001
    """
    from simnmt.experiment.inputs import GIGABYTE
    from simnmt.live.deployment import engine_settings, holds_models, model_engines, served_target
    from simnmt.live.engine import EngineSettings
    from simnmt.live.engine_process import EngineProcess
    from simnmt.live.model_engines import ModelEngines
    from simnmt.live.server import LiveServer

    front, models = service.settings("127.0.0.1:5001"), options.model or []
    plan = None if scenario is None else _read_plan(scenario, changes)
    if plan is None and not models:
        raise InputError("nothing to serve", remedy="give --model, or a scenario and its --device")
    if plan is None and given(context, ("overrides", "any_model", "allow_code")):
        what = "--set, --any-model or --allow-code without a scenario"
        raise InputError(what, remedy="name a scenario, or leave them out")
    served = device or ("cpu" if plan is None else next(reversed(plan.scenario.devices)))
    is_several = len(models) > 1 or any(map(_is_of_pair, models)) if plan is None else holds_models(plan, served)
    if memory_gb is not None and (plan is not None or not is_several):
        raise InputError("--memory-gb is for several --model of pairs", remedy="leave it out; a scenario states memory_gb")
    if is_several and given(context, ("source", "target")):
        raise InputError("--source or --target with models of pairs", remedy="leave them out: each model states its languages")
    settings, by_pair = options.settings(several=is_several), _models_of_pairs(models) if is_several else {}
    with tempfile.TemporaryDirectory(prefix="simnmt-live-") as folder:
        engine: Engine
        if plan is not None and is_several:
            engine = model_engines(plan, served, Path(folder), by_pair, any_model, **settings)
        elif plan is not None:
            waits_s = plan.scenario.max_wait_s
            engine = EngineProcess(engine_settings(served_target(plan, served), Path(folder), any_model, waits_s, **settings))
        elif is_several:
            loaded = {pair: EngineSettings(model, **settings, device=served) for pair, model in by_pair.items()}
            engine = ModelEngines(loaded, None if memory_gb is None else round(GIGABYTE * memory_gb))
        else:
            engine = EngineProcess(EngineSettings(**settings, device=served))
        if plan is not None:
            most, classes = plan.scenario.devices[served].refuses_above, plan.scenario.ranked_classes
            front = replace(front, max_waiting=most, classes=classes)
        if isinstance(engine, ModelEngines):
            front = replace(front, pairs=[(source, target) for source, target in (pair.split("-") for pair in engine.models)])
        with service.open_log() as log:
            serve(LiveServer(engine, front, log=log, on_error=note), as_json)


@app.command()
@grouped
def gateway(
    context: typer.Context,
    options: EngineOptions,
    service: ServiceOptions,
    changes: Overrides,
    scenario: Annotated[str, argument("SCENARIO|RUN_DIR", "The devices, and what the policies know.")],
    servers: Annotated[list[str] | None, option("[DEVICE=]URL", "Server of each device but the first.", "--server")] = None,
    policy: Annotated[str | None, option("NAME", "Policy of the scenario. [default: the one that the run recommends]")] = None,
    site: Annotated[str | None, option("NAME", "Site of the scenario whose gateway this is.")] = None,
    workload: Workload = None,
    server_token_file: Annotated[Path | None, option("FILE", f"Token of the servers; else that of ${SERVER_TOKEN}.")] = None,
    ca_file: CaFile = None,
    offload_timeout: Annotated[float, time_option("Time for a server before the gateway translates. [default: 10s]")] = 10.0,
    delays: Annotated[bool, flag("--delays", "Sleep the delays of the scenario's network to each server and back.")] = False,
    local_token_file: Annotated[Path | None, option("FILE", f"Token of --local-server; else that of ${LOCAL_TOKEN}.")] = None,
    local_server: Annotated[str | None, option("URL", "Service of this box in place of the gateway's engine.")] = None,
    local_unit: Annotated[str | None, option("UNIT", "Its tokens, as sentencepiece:PATH. [default: the profile's]")] = None,
    api: ApiOption = None,
    any_model: AnyModel = False,
    as_json: AsJson = False,
) -> None:
    """Decide for each request by a scenario's policy: translate it here, or send it to a server; until Ctrl-C or SIGTERM.

    Example: simnmt live gateway @live-smoke --policy cnmt --server http://127.0.0.1:5001 --forced-lengths
    """
    from simnmt.live.decider import deployable_policy, live_unit
    from simnmt.live.deployment import engine_settings, expected_hash, recommended_policy, target_of
    from simnmt.live.engine_process import EngineProcess
    from simnmt.live.gateway import GatewaySettings, LiveGateway, with_classes
    from simnmt.live.service_engine import ServiceEngine, unit_of_lengths
    from simnmt.service.apis import Api
    from simnmt.service.http_server import read_token

    def local_engine(folder: Path) -> Engine:
        """Return what executes on the gateway's own device. Raises `InputError`."""
        target = target_of(unit, unit.case.targets[0].device)
        if local_server is None:
            if local_unit is not None:
                raise InputError("--local-unit without --local-server", remedy="leave it out")
            waits_s, scored = unit.scenario.max_wait_s, deployable_policy(unit, settings.policy).reads_logprob
            return EngineProcess(engine_settings(target, folder, any_model, waits_s, scored=scored, **options.settings()))
        if engine_options := given(context, [field.name for field in fields(EngineOptions)]):
            what = f"--{engine_options[0].replace('_', '-')} is of an engine of the gateway, not of --local-server"
            raise InputError(what, remedy="give it to that service")
        return ServiceEngine(
            local_server,
            Api(),
            target.profile,
            (service.source, service.target),
            unit=unit_of_lengths(target, local_unit),
            expected_hash=None if any_model else expected_hash(target),
            token_option="--local-token-file",
            token=read_token(local_token_file, LOCAL_TOKEN),
            timeout_s=service.deadline,
            ca_file=ca_file,
        )

    front, plan = service.settings("127.0.0.1:5000"), _read_plan(scenario, changes)
    if plan.sites and site is None:
        raise InputError("which site?", remedy=f"give --site, one of {', '.join(part.name for part in plan.sites)}")
    unit = live_unit(plan, workload, site)
    if policy is None and not Path(scenario).is_dir():
        remedy = f"give --policy, one of {', '.join(unit.scenario.policies)}, or a run directory"
        raise InputError("which policy?", remedy=remedy)
    policy = policy or recommended_policy(Path(scenario), unit)
    urls = _servers(servers or (), [target.device for target in unit.case.targets[1:]])
    front = replace(front, max_waiting=unit.scenario.devices[unit.first_device].refuses_above)
    front = with_classes(front, unit)
    token, apis = read_token(server_token_file, SERVER_TOKEN), _apis(api or (), urls, "--server")
    settings = GatewaySettings(unit, policy, urls, front, token, ca_file, offload_timeout, any_model, delays, apis)
    with tempfile.TemporaryDirectory(prefix="simnmt-live-") as folder:
        engine = local_engine(Path(folder))
        with service.open_log() as log:
            serve(LiveGateway(settings, engine, log=log, on_error=note), as_json)


@dataclass(frozen=True, slots=True)
class ReplayChanges(Changes):
    """As `Changes`, with one replication by default: a replay takes as long as its requests."""

    replications: Annotated[int, option("R", "Repeats, one after another.", min=1)] = 1


@app.command()
@grouped
def replay(
    changes: ReplayChanges,
    scenario: Annotated[str, argument("SCENARIO|RUN_DIR", "The workload, its arrivals, and the devices of the service.")],
    gateway: Annotated[str, option("URL", "The gateway.")],
    token_file: Annotated[Path | None, option("FILE", f"Token that the service asks for; else that of ${TOKEN}.")] = None,
    ca_file: CaFile = None,
    workload: Workload = None,
    text: Annotated[Path | None, option("FILE", "Send its lines in turn, not texts of the workload's lengths.")] = None,
    source: Source = "de",
    target: Target = "en",
    timeout: Annotated[float, time_option("Time within which a request must be answered. [default: 60s]")] = 60.0,
    out: Annotated[Path | None, option("DIR", "Run directory to write. [default: a new one under reports/]")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Send a scenario's requests to a live gateway by the workload's arrivals, and measure them as a run.

    Example: simnmt live replay @live-smoke --gateway http://127.0.0.1:5000 --requests 500
    """
    import simnmt.api
    from simnmt.live.replay import ReplaySettings
    from simnmt.service.http_server import read_token

    token = read_token(token_file, TOKEN)
    settings = ReplaySettings(gateway, token, ca_file, source, target, _read_lines(text), workload, timeout)
    with progress_bar() as bar, prints_of_users():
        result = simnmt.api.replay(
            simnmt.api.Scenario(scenario, changes.values, allow_code=changes.allow_code),
            settings,
            out=out,
            under=None if out else "reports",
            announce=bar.say if bar.is_drawn else note,
            progress=lambda done, total: bar.runs(done, total, "requests"),
            force=force,
        )
    print_run(result, as_json)


def serve(service: LiveServer | LiveGateway, as_json: bool) -> None:
    """Start a service, print where it listens, serve until a signal, and print a summary."""
    import uvloop  # asyncio's own loop takes a quarter more of the processor for a request

    def print_line(document: Mapping[str, Any], text: str, out: TextIO = sys.stdout) -> None:
        print(json.dumps(document) if as_json else text, file=out, flush=True)  # a program may wait for it

    async def run() -> None:
        try:
            await service.start()
            url = service.http.url
            print_line({"event": "listening", "url": url, **service.health()}, f"listening on {url}")
            await service.http.serve_until_stopped()
        finally:
            await service.close()

    begin_s = time.monotonic()
    with prints_of_users():
        uvloop.run(run())
    outcomes, duration_s = dict(service.outcomes), time.monotonic() - begin_s
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "no request"
    document = {"event": "stopped", "seconds": round(duration_s, 3), "outcomes": outcomes}
    print_line(document, f"stopped after {duration_s:.1f} s: {counts}")


def _read_prompt(path: Path) -> str:
    from simnmt.base.files import read_bounded

    try:
        prompt = read_bounded(path, 100_000).decode("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "binary data, not UTF-8"
        raise InputError(f"no prompt: {what}", path=path, remedy="name a file of text") from None
    if prompt.count("{text}") != 1:
        raise InputError("a prompt needs {text} once, where the text goes", path=path, remedy="write it into the file")
    return prompt


def _read_lines(path: Path | None) -> list[str] | None:
    """Return the lines of a text that are not blank, one at least; None without a text. Raises `InputError`."""
    from simnmt.workload.text_lines import read_lines

    return None if path is None else [line for line in map(str.strip, read_lines(path)) if line]


def _read_plan(scenario: str, changes: Overrides | Changes) -> RunPlan:
    from simnmt.experiment.inputs import read_inputs
    from simnmt.scenario.source import open_source

    with prints_of_users():
        source = open_source(scenario, changes.values, allow_code=changes.allow_code)
        return read_inputs(source.scenario, Path.cwd(), source.document)


def _servers(given: Sequence[str], devices: Sequence[str]) -> dict[str, str]:
    """Return the URL of each device; a URL alone is of the only other device."""
    servers = {}
    for text in given:
        device, equals, url = text.partition("=")
        if not equals or "/" in device:
            if len(devices) != 1:
                raise InputError(f"{shorten(text)} names no device", remedy=f"write {devices[0] if devices else 'DEVICE'}=URL")
            device, url = devices[0], text
        if device in servers:
            raise InputError(f"device {shorten(device)} has two servers", remedy="give one --server for each device")
        servers[device] = url
    return servers


def _apis(given: Sequence[str], devices: Collection[str], option: str) -> dict[str, Api]:
    """Return the API of each of `devices` that is given one; `option`: gives their addresses."""
    from simnmt.service.apis import Api

    apis = {}
    for text in given:
        device, has_name, name = text.partition("=")
        if not has_name:
            raise InputError(f"--api {shorten(text)} names no API", remedy=f"write {next(iter(devices), 'DEVICE')}=openai")
        if device not in devices:
            remedy = f"write {next(iter(devices), 'DEVICE')}=openai"
            raise InputError(f"--api names {shorten(device)}, which has no {option}", remedy=remedy)
        apis[device] = Api.of(name)
    return apis


@grouped
def validate(
    changes: Changes,
    scenario: Annotated[str, argument("SCENARIO|@NAME", "Its first workload, or all its sites, by their own arrivals.")],
    policies: Annotated[str | None, option("LIST", "Policies of the scenario. [default: all that can be deployed]")] = None,
    services: Annotated[list[str] | None, option("DEVICE=URL", "Device that is a running service.", "--service")] = None,
    api: ApiOption = None,
    text: Annotated[
        Path | None, option("FILE", "Its lines are sent, each for a request of its length. [default: words]")
    ] = None,
    any_model: AnyModel = False,
    model: Annotated[list[str] | None, option("DEVICE=FOLDER", "Trained weights of a device. [default: random ones]")] = None,
    within: Annotated[float | None, share_option("End with status 3 if a structural error of a mean is greater.")] = None,
    out: Annotated[Path | None, option("DIR", "Folder of the results. [default: a new one under reports/]")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario live on this box, simulate the same requests with the measured executions and from the profiles, compare.

    Example: simnmt validate @live-smoke --requests 60 --replications 2 --any-model
    """
    from simnmt.base.files import write_text
    from simnmt.live.deployment import models_by_device
    from simnmt.live.validation import LEGEND
    from simnmt.live.validation import validate as run_validation
    from simnmt.report.page_template import Section, render_page
    from simnmt.report.table import Table
    from simnmt.results.run_directory import check_free, reserved
    from simnmt.service.apis import Api

    if out is not None:
        check_free(out)
    lines = _read_lines(text)
    with prints_of_users():
        names = policies.split(",") if policies else ()
        plan = _read_plan(scenario, changes)
        urls = _servers(services or (), list(plan.scenario.devices))
        apis = {device: Api() for device in urls} | _apis(api or (), urls, "--service")
        validation = run_validation(
            plan,
            policies=names,
            any_model=any_model,
            models=models_by_device(model or (), plan.scenario.devices),
            services={device: (url, apis[device]) for device, url in urls.items()},
            lines=None if lines is None else dict.fromkeys(lines, 0),
            progress=note,
        )
    rows = [row.cells() for row in validation.rows]
    texts = {head: {row[head] for row in rows} for head in rows[0]}
    is_single = {"site": len(texts["site"]) == 1}
    is_same = {head: texts[head] == ({"0.0"} if "cached" in head else {"-"}) for head in texts if head != "spread %"}
    heads = [head for head in texts if not (is_same | is_single).get(head)]
    cells = [[row[head] for head in heads] for row in rows]
    table = Table.of_texts("", heads, cells, words=heads.index("live ms"), id="errors")
    sentences = [ranking.sentence for ranking in validation.rankings]
    print_result(as_json, validation.document, lambda: "\n".join([table.to_text(), LEGEND, "", *sentences]))
    if validation.warning is not None:
        warn(validation.warning)
        sentences.append(validation.warning)
    section = Section("Errors of the simulations", text=[LEGEND], tables=[table], notes=sentences)
    with nullcontext(out) if out is not None else reserved(Path("reports"), "validation") as folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "validation.json").write_text(json.dumps(validation.document(), indent=1) + "\n", encoding="utf-8")
        write_text(folder / "validation.html", render_page("simnmt validate", validation.scenario, [section]))
        note(f"wrote {folder}/validation.html")
    if within is not None and validation.worst_structural_error > within:
        warn(f"a structural error of {100 * validation.worst_structural_error:.2f} %, more than --within {100 * within:g} %")
        raise typer.Exit(3)
