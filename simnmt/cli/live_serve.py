"""`simnmt live server` and `simnmt live gateway`: a model behind LibreTranslate's API, and a policy that decides before it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from simnmt.base.errors import InputError, shorten
from simnmt.base.files import MOST_SECRET_BYTES, read_bounded
from simnmt.base.packages import named_if_missing
from simnmt.cli.calibrate import Backend
from simnmt.cli.options import (
    AllowCode,
    AsJson,
    Overrides,
    argument,
    flag,
    given,
    option,
    parse_bytes,
    parse_duration,
    parse_integers,
    prints_of_users,
)
from simnmt.cli.terminal import note

if TYPE_CHECKING:
    from simnmt.batching import Batching
    from simnmt.experiment.cases import Unit
    from simnmt.live.gateway import LiveGateway
    from simnmt.live.server import Engine, FrontSettings, LiveServer
    from simnmt.service.http_server import Access, Limits

TOKEN, SERVER_TOKEN, LOCAL_TOKEN = "SIMNMT_TOKEN", "SIMNMT_SERVER_TOKEN", "SIMNMT_LOCAL_TOKEN"
_BATCHING = re.compile(r"(mini|maxi|top-up):(\d{1,5})")

Model = Annotated[
    str | None, option("NAME|PATH", "A model as for calibrate, or a trained model's folder.", "--model", group="Engine")
]
EngineBackend = Annotated[Backend | None, option(None, "Engine that computes. [default: torch]", "--backend")]
ComputeType = Annotated[str | None, option("TYPE", "Such as float32 or int8. [default: float32]", "--compute-type")]
EngineThreads = Annotated[int | None, option("T", "CPU threads. [default: one for each core]", "--threads", min=1)]
Beam = Annotated[int | None, option("B", "Hypotheses kept; 1 is greedy. [default: 1]", "--beam", min=1, max=1000)]
Fused = Annotated[bool | None, flag("--fused", "Fuse bias, softmax and search.")]
BatchingOption = Annotated[str | None, option("KIND:SIZE", "mini:8, maxi:8 or top-up:8. [default: one by one]", "--batching")]
LongestWait = Annotated[
    float | None,
    option("TIME", "How long the first sentence waits for company. [default: 0s]", "--longest-wait", parser=parse_duration),
]
MaxLen = Annotated[int | None, option("N", "Most target tokens. [default: twice the source's and 10]", "--max-len", min=1)]
SrcLang = Annotated[
    str | None,
    option("CODE", "Language of the text as a model of Hugging Face writes it, such as deu_Latn (NLLB).", "--src-lang"),
]
TgtLang = Annotated[str | None, option("CODE", "Language of its translations, such as eng_Latn.", "--tgt-lang")]
Cpus = Annotated[
    Any, option("N[,N]", "Processors to which the engine is pinned. [default: any]", "--cpus", parser=parse_integers)
]
AnyModel = Annotated[bool, flag("--any-model", "Allow engines other than those of the profiles.")]
Source = Annotated[str, option("CODE", "Language that is translated.", "--source", group="Clients")]
TargetLanguage = Annotated[str, option("CODE", "Language of the translations.", "--target")]
Listen = Annotated[str, option("HOST:PORT", "Where clients connect; port 0: any.", "--listen")]
TokenFile = Annotated[Path | None, option("FILE", f"Token that clients must send; else that of ${TOKEN}.", "--token-file")]
TlsCert = Annotated[Path | None, option("FILE", "Certificate, PEM.", "--tls-cert")]
TlsKey = Annotated[Path | None, option("FILE", "Its key, PEM.", "--tls-key")]
BehindProxy = Annotated[bool, flag("--behind-proxy", "A proxy before the service encrypts.")]
AllowOrigin = Annotated[
    str, option("ORIGIN|*", "Origin of web pages whose scripts may ask. [default: none]", "--allow-origin", show_default=False)
]
ForcedLengths = Annotated[bool, flag("--forced-lengths", "Let requests state their number of target tokens, to validate.")]
MaxWaiting = Annotated[
    int, option("N", "Most texts under way; more are refused (429).", "--max-waiting", min=1, group="Limits")
]
MaxTexts = Annotated[int, option("N", "Most texts of a request.", "--max-texts", min=1)]
MaxBody = Annotated[
    int, option("SIZE", "Largest body (413). [default: 1MB]", "--max-body", parser=parse_bytes, show_default=False)
]
Deadline = Annotated[
    float,
    option("TIME", "Longest time of a request (504). [default: 30s]", "--deadline", parser=parse_duration, show_default=False),
]
Drain = Annotated[
    float,
    option(
        "TIME",
        "Longest time of requests under way at the end. [default: 30s]",
        "--drain",
        parser=parse_duration,
        show_default=False,
    ),
]
Log = Annotated[Path | None, option("FILE", "Append a line of JSON for each request.", "--log", group="Other")]


def server(
    context: typer.Context,
    scenario: Annotated[str | None, argument("[SCENARIO|RUN_DIR]", "Serve a device of it as its profile says.")] = None,
    device: Annotated[
        str | None, option("NAME", "Device of the scenario; without a scenario, cpu or cuda. [default: the last; cpu]")
    ] = None,
    model: Model = None,
    backend: EngineBackend = None,
    compute_type: ComputeType = None,
    threads: EngineThreads = None,
    beam: Beam = None,
    fused: Fused = None,
    batching: BatchingOption = None,
    longest_wait: LongestWait = None,
    max_len: MaxLen = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    cpus: Cpus = None,
    any_model: AnyModel = False,
    source: Source = "de",
    target: TargetLanguage = "en",
    listen: Listen = "127.0.0.1:5001",
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    allow_origin: AllowOrigin = "",
    forced_lengths: ForcedLengths = False,
    max_waiting: MaxWaiting = 256,
    max_texts: MaxTexts = 100,
    max_body: MaxBody = 1_000_000,
    deadline: Deadline = 30.0,
    drain: Drain = 30.0,
    log: Log = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Serve a model behind LibreTranslate's API, until Ctrl-C or SIGTERM; requests under way are finished.

    Example: simnmt live server --model out/de-en --batching top-up:8 --listen 127.0.0.1:5001
    """
    with named_if_missing("live"):
        from simnmt.live.deployment import engine_settings, expected_hash, target_of
        from simnmt.live.engine import EngineSettings
        from simnmt.live.engine_process import EngineProcess
        from simnmt.live.server import LiveServer

    front, access, limits = service_settings(context.params)
    with tempfile.TemporaryDirectory(prefix="simnmt-live-") as folder, log_file(log) as file:
        if scenario is None:
            if model is None:
                raise InputError("nothing to serve", remedy="give --model, or a scenario and its --device")
            if given(context, ("overrides", "any_model", "allow_code")):
                what = "--set, --any-model or --allow-code without a scenario"
                raise InputError(what, remedy="name a scenario, or leave them out")
            engine, expected = EngineSettings(**_engine_options(context.params, device=device)), None
        else:
            unit = scenario_unit(scenario, overrides or (), allow_code=allow_code)
            chosen = target_of(unit, device or unit.case.targets[-1].device)
            engine = engine_settings(chosen, Path(folder), **_engine_options(context.params))
            expected = None if any_model else expected_hash(chosen)
        process = EngineProcess(engine)
        serve(LiveServer(process, front, access, limits, expected_hash=expected, log=file, on_error=note), as_json)


def gateway(
    context: typer.Context,
    scenario: Annotated[str, argument("SCENARIO|RUN_DIR", "The devices, and what the policies know.")],
    servers: Annotated[
        list[str] | None, option("[DEVICE=]URL", "Server of each device but the first; repeatable.", "--server")
    ] = None,
    policy: Annotated[str | None, option("NAME", "Policy of the scenario. [default: the one that the run recommends]")] = None,
    workload: Annotated[str | None, option("NAME", "Workload whose lengths the policy knows. [default: the first]")] = None,
    server_token_file: Annotated[
        Path | None, option("FILE", f"Token that the servers ask for; else that of ${SERVER_TOKEN}.")
    ] = None,
    ca_file: Annotated[
        Path | None, option("FILE", "Certificate of the authority that signed those of https:// servers, PEM.")
    ] = None,
    offload_timeout: Annotated[
        float,
        option(
            "TIME",
            "Time for a server to answer, before the gateway translates. [default: 10s]",
            parser=parse_duration,
            show_default=False,
        ),
    ] = 10.0,
    delays: Annotated[bool, flag("--delays", "Sleep the delays of the scenario's network on the way to the servers.")] = False,
    local_token_file: Annotated[
        Path | None, option("FILE", f"Token that --local-server asks for; else that of ${LOCAL_TOKEN}.")
    ] = None,
    local_server: Annotated[
        str | None, option("URL", "Service of this box that translates what stays, in place of an engine of the gateway.")
    ] = None,
    local_unit: Annotated[
        str | None, option("UNIT", "Its tokens: sentencepiece:PATH, tokenizers:PATH. [default: the profile's, if countable]")
    ] = None,
    model: Model = None,
    backend: EngineBackend = None,
    compute_type: ComputeType = None,
    threads: EngineThreads = None,
    beam: Beam = None,
    fused: Fused = None,
    batching: BatchingOption = None,
    longest_wait: LongestWait = None,
    max_len: MaxLen = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    cpus: Cpus = None,
    any_model: AnyModel = False,
    source: Source = "de",
    target: TargetLanguage = "en",
    listen: Listen = "127.0.0.1:5000",
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    allow_origin: AllowOrigin = "",
    forced_lengths: ForcedLengths = False,
    max_waiting: MaxWaiting = 256,
    max_texts: MaxTexts = 100,
    max_body: MaxBody = 1_000_000,
    deadline: Deadline = 30.0,
    drain: Drain = 30.0,
    log: Log = None,
    overrides: Overrides = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Decide for each request by a scenario's policy: translate it here, or send it to a server; until Ctrl-C or SIGTERM.

    Example: simnmt live gateway @live-smoke --policy cnmt --server http://127.0.0.1:5001 --forced-lengths
    """
    with named_if_missing("live"):
        from simnmt.live.deployment import recommended_policy
        from simnmt.live.gateway import GatewaySettings, LiveGateway

    front, access, limits = service_settings(context.params)
    unit = scenario_unit(scenario, overrides or (), workload, allow_code=allow_code)
    with tempfile.TemporaryDirectory(prefix="simnmt-live-") as folder, log_file(log) as file:
        settings = GatewaySettings(
            unit,
            policy or _only_policy(scenario, unit, recommended_policy),
            _servers(servers or (), [target.device for target in unit.case.targets[1:]]),
            front,
            access,
            limits,
            token=read_token(server_token_file, SERVER_TOKEN),
            ca_file=ca_file,
            offload_s=offload_timeout,
            any_model=any_model,
            delays=delays,
        )
        engine = _local_engine(context, unit, Path(folder))
        serve(LiveGateway(settings, engine, log=file, on_error=note), as_json)


def serve(service: LiveServer | LiveGateway, as_json: bool) -> None:
    """Start a service, print where it listens, serve until a signal, and print a summary."""
    out = sys.stdout

    async def run() -> None:
        try:
            await service.start()
            url = service.front.service.url
            _print_line(as_json, {"event": "listening", "url": url, **service.health()}, f"listening on {url}", out)
            await service.front.service.serve_until_stopped(service.engine.hurry)
        finally:
            await service.close()

    begin_s = time.monotonic()
    with prints_of_users():
        asyncio.run(run())
    outcomes, duration_s = dict(service.front.outcomes), time.monotonic() - begin_s
    fallbacks = getattr(service, "fallbacks", 0)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()) or "no request"
    counts += f"; {fallbacks:,} fell back to this box" if fallbacks else ""
    summary = {"event": "stopped", "seconds": round(duration_s, 3), "outcomes": outcomes, "fallbacks": fallbacks}
    _print_line(as_json, summary, f"stopped after {duration_s:.1f} s: {counts}", out)


def _print_line(as_json: bool, document: Mapping[str, Any], text: str, out: TextIO) -> None:
    """Print a line that a program may wait for."""
    print(json.dumps(document) if as_json else text, file=out, flush=True)


def service_settings(params: Mapping[str, Any]) -> tuple[FrontSettings, Access, Limits]:
    """Return what the options say about clients. Raises `InputError`."""
    from simnmt.live.server import FrontSettings
    from simnmt.service.http_server import Access, Limits, parse_address

    front = FrontSettings(
        params["source"],
        params["target"],
        params["max_texts"],
        params["max_waiting"],
        params["deadline"],
        params["forced_lengths"],
    )
    access = Access(
        parse_address(params["listen"], "--listen"),
        read_token(params["token_file"], TOKEN),
        params["tls_cert"],
        params["tls_key"],
        params["behind_proxy"],
        params["allow_origin"],
    )
    access.ssl_context()  # refuses unusable files before the model is loaded
    return front, access, Limits(params["max_body"], drain_s=params["drain"])


def _engine_options(params: Mapping[str, Any], **others: str | None) -> Mapping[str, Any]:
    """Return the fields of `EngineSettings` that options give; `others`: further fields, None for none."""
    from simnmt.live.engine import EngineSettings

    names = {field.name for field in fields(EngineSettings)} - {"batching", "device"}
    options = {
        name: value for name, value in ({name: params.get(name) for name in names} | others).items() if value is not None
    }
    if "backend" in options:
        options["backend"] = options["backend"].value
    if params["batching"] is not None:
        options["batching"] = _parse_batching(params["batching"], params["longest_wait"] or 0.0)
    elif params["longest_wait"] is not None:
        raise InputError("--longest-wait without --batching", remedy="add --batching, such as mini:8")
    return options


_ENGINE_OPTIONS = (
    *("model", "backend", "compute_type", "threads", "beam", "fused", "batching", "longest_wait", "max_len", "cpus"),
    *("src_lang", "tgt_lang"),
)


def _local_engine(context: typer.Context, unit: Unit, folder: Path) -> Engine:
    """Return what executes on a gateway's own device, as the options say. Raises `InputError`."""
    from simnmt.live.deployment import engine_settings, target_of
    from simnmt.live.engine_process import EngineProcess
    from simnmt.live.service_engine import ServiceEngine, unit_of_lengths

    params, target = context.params, target_of(unit, unit.case.targets[0].device)
    if params["local_server"] is None:
        if params["local_unit"] is not None:
            raise InputError("--local-unit without --local-server", remedy="leave it out")
        return EngineProcess(engine_settings(target, folder, **_engine_options(params)))
    if engine_options := given(context, _ENGINE_OPTIONS):
        what = f"--{engine_options[0].replace('_', '-')} is of an engine of the gateway, not of --local-server"
        raise InputError(what, remedy="give it to that service")
    return ServiceEngine(
        params["local_server"],
        unit_of_lengths(target, params["local_unit"]),
        (params["source"], params["target"]),
        params["deadline"],
        read_token(params["local_token_file"], LOCAL_TOKEN),
        params["ca_file"],
    )


def _parse_batching(text: str, longest_wait_s: float) -> Batching:
    from simnmt.batching.batcher import MAXI
    from simnmt.batching.configuration import MOST, MaxiBatching, MiniBatching, TopUpBatching

    match = _BATCHING.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= MOST:
        remedy = "write it as mini:8, maxi:8 or top-up:8"
        raise InputError(f"--batching {shorten(text)!r} is no kind with a size", remedy=remedy)
    size, wait_ms = int(match[2]), 1e3 * longest_wait_s
    if match[1] == "mini":
        return MiniBatching(kind="mini", size=size, longest_wait_ms=wait_ms).batching
    if match[1] == "maxi":
        return MaxiBatching(kind="maxi", size=size, longest_wait_ms=wait_ms, collect=max(MAXI, size)).batching
    return TopUpBatching(kind="top_up", size=size, longest_wait_ms=wait_ms).batching


def read_token(path: Path | None, variable: str) -> str:
    """Return the token of a file, else of the environment; empty without both."""
    if path is None:
        return os.environ.get(variable, "").strip()
    try:
        token = read_bounded(path, MOST_SECRET_BYTES, pipes=True).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        raise InputError(f"cannot read the token: {why}", path=path, remedy="name a text file") from None
    if not token or not token.isprintable() or len(token) > 1000:
        what = "holds more than one line" if "\n" in token else "holds no token" if not token else "holds more than a token"
        raise InputError(what, path=path, remedy="write one line of at most 1000 characters")
    return token


def scenario_unit(scenario: str, overrides: Sequence[str], workload: str | None = None, *, allow_code: bool) -> Unit:
    """Return what a live service of a scenario needs of it. Raises `InputError`."""
    from simnmt.experiment.inputs import read_inputs
    from simnmt.live.decider import live_unit
    from simnmt.scenario.source import open_source

    with prints_of_users():
        source = open_source(scenario, overrides, allow_code=allow_code)
        return live_unit(read_inputs(source.scenario, Path.cwd(), source.document), workload)


def _only_policy(scenario: str, unit: Unit, recommended: Callable[[Path, Unit], str]) -> str:
    if Path(scenario).is_dir():
        return recommended(Path(scenario), unit)
    raise InputError("which policy?", remedy=f"give --policy, one of {', '.join(unit.scenario.policies)}, or a run directory")


def _servers(given: Sequence[str], devices: Sequence[str]) -> dict[str, str]:
    """Return the URL of each device; a URL alone is of the only other device."""
    servers = {}
    for text in given:
        device, equals, url = text.partition("=")
        if not equals or "/" in device:
            if len(devices) != 1:
                raise InputError(f"{shorten(text)} is of no device", remedy=f"write {devices[0] if devices else 'DEVICE'}=URL")
            device, url = devices[0], text
        servers[device] = url
    return servers


@contextmanager
def log_file(path: Path | None) -> Iterator[TextIO | None]:
    """Open a log to append lines to; None for no log. A log that is new and empty is removed if the service fails."""
    if path is None:
        yield None
        return
    is_new = not os.path.lexists(path)
    try:
        with path.open("a", encoding="utf-8", buffering=1) as file:
            yield file
    except BaseException:
        if is_new and path.is_file() and not path.stat().st_size:
            path.unlink()
        raise
