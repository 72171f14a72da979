"""What a gateway adds to a request: latencies at a fixed rate, before engines that answer at once.

    python -m benchmarks.gateway_overhead [--seconds 10] [--rounds 5]

A bare aiohttp server that echoes (what HTTP and the client cost), a gateway that translates all 500 requests/s itself, and one
that offloads all 200 requests/s run in turn. The gateway and its engine have one processor; the load generator, the bare and
the live server share another. The load is an open loop: a latency counts from the moment at which the request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import uvloop
from aiohttp import web
from numpy.typing import NDArray

from simnmt.calibrate.box import QUIET_SHARE, others_cpus
from simnmt.experiment.inputs import read_inputs
from simnmt.kernels.native_library import processor
from simnmt.live.decider import live_unit
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.scenario.source import open_source
from simnmt.service.client import TranslationClient
from simnmt.service.load import Load, run_precisely, send_load
from simnmt.service.messages import TranslateRequest
from tests.live.fake_engines import load_echo

RATES_RPS = {"bare": 500.0, "local": 500.0, "offloaded": 200.0}
BARS_MS = {"local": 2.0, "offloaded": 4.0}  # at p99; half of them is hoped for
TEXT = "Heute ist das Wetter schön und wir gehen spazieren"


async def _serve_bare() -> None:
    async def echo(request: web.BaseRequest) -> web.Response:
        return web.json_response({"translatedText": (await request.json())["q"]})

    runner = web.ServerRunner(web.Server(echo, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def _serve(service: LiveServer | LiveGateway) -> None:
    await service.start()
    print(service.http.url, flush=True)
    await service.http.serve_until_stopped()
    await service.close()


def _service(kind: str, cpu: str, url: str) -> None:
    """Serve on one processor until SIGTERM; print the address. `kind`: bare, server, or a policy of a gateway."""
    os.sched_setaffinity(0, {int(cpu)})
    if kind == "bare":
        uvloop.run(_serve_bare())
    engine = EngineProcess(EngineSettings("echo", loader=load_echo, nice=0))
    if kind == "server":
        uvloop.run(_serve(LiveServer(engine, FrontSettings())))
        return
    source = open_source("@open-loop", ["fit.inferences=0"])
    unit = live_unit(read_inputs(source.scenario, Path.cwd(), source.document))
    with tempfile.TemporaryFile("w", buffering=1) as log:
        gateway = LiveGateway(GatewaySettings(unit, kind, {"cloud": url}, any_model=True), engine, log=log)
        uvloop.run(_serve(gateway))


@contextmanager
def _running(kind: str, cpu: int, url: str = "-") -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.gateway_overhead", "--service", kind, str(cpu), url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        yield process.stdout.readline().strip()
        process.terminate()


async def _latencies_s(url: str, rate_rps: float, seconds: float, seed: int) -> NDArray[np.float64]:
    count = int(rate_rps * seconds)
    offsets_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, count)).tolist()
    requests = [TranslateRequest((TEXT,), False, "de", "en", number=str(number)) for number in range(count)]
    async with TranslationClient(url, connections=0) as client:
        await send_load(Load(requests[:50], clients=4), [client])
        log = await send_load(Load(requests, offsets_s), [client])
    assert log.answered.all(), log.fault
    return log.latency_s


def _measure(rounds: int, seconds: float) -> None:
    first, rest, *_ = sorted(os.sched_getaffinity(0)) * 2
    os.sched_setaffinity(0, {rest})
    latency_ms: dict[str, list[NDArray[np.float64]]] = {name: [] for name in RATES_RPS}
    with ExitStack() as stack:
        server = stack.enter_context(_running("server", rest))
        urls = {"bare": stack.enter_context(_running("bare", rest))}
        for name, policy in (("local", "edge"), ("offloaded", "cloud")):
            urls[name] = stack.enter_context(_running(policy, first, server))
        used_cpus = [others_cpus() or 0.0]
        for number in range(rounds):
            for name, url in urls.items():
                latency_ms[name].append(1e3 * run_precisely(_latencies_s(url, RATES_RPS[name], seconds, number)))
                used_cpus.append(others_cpus() or 0.0)  # while nothing is sent, all services of this program are idle
    if max(used_cpus) > QUIET_SHARE * (os.cpu_count() or 1):
        print(f"No result: other programs used up to {max(used_cpus):.2f} CPUs. Repeat on a quiet box. Disturbed figures:")
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    for name, runs in latency_ms.items():
        p50_ms, p99_ms = np.median([np.quantile(run, (0.5, 0.99)) for run in runs], axis=0).tolist()
        bar = f"; at most {BARS_MS[name]:g} ms at p99" if name in BARS_MS else ""
        print(f"{name:10} {RATES_RPS[name]:.0f} requests/s: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms{bar}")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--service", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.service:
        _service(*options.service)
    else:
        _measure(options.rounds, options.seconds)


if __name__ == "__main__":
    main()
