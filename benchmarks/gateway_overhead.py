"""What a gateway adds to a request: latencies at a fixed rate, before engines that answer at once.

    python -m benchmarks.gateway_overhead [--seconds 10] [--rounds 5]

A live server that is asked directly, a gateway that translates all requests itself, and one that offloads all of them to the
server run in turn. The gateway and its engine have one processor; the load generator and the server share another. The load is
an open loop: a latency counts from the moment at which the request was due.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks.services.base import free_port, running
from simnmt.calibrate.box import QUIET_SHARE, BusyWatch
from simnmt.experiment.inputs import read_inputs
from simnmt.kernels.native_library import processor
from simnmt.live.decider import live_unit
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.scenario.source import open_source
from simnmt.service.client import TranslationClient
from simnmt.service.http_server import Access, Address
from simnmt.service.load import Load, run_precisely, send_load
from simnmt.service.messages import TranslateRequest
from tests.live.fake_engines import load_echo

RATES_RPS = {"server": 500.0, "edge": 500.0, "cloud": 200.0}
"""Requests a second: to the server, or to a gateway by its policy."""
BARS_MS = {"edge": 2.0, "cloud": 4.0}
"""Greatest p99; half of it is hoped for."""
TEXT = "Heute ist das Wetter schön und wir gehen spazieren"


async def serve(service: LiveServer | LiveGateway) -> None:
    await service.start()
    await service.http.serve_until_stopped()
    await service.close()


def serve_with_echo(kind: str, port: str, server: str) -> None:
    """Serve until SIGTERM. `kind`: server, or the policy of a gateway before `server`."""
    engine = EngineProcess(EngineSettings("echo", loader=load_echo, nice=0))
    front = FrontSettings(access=Access(Address(port=int(port))))
    if kind == "server":
        uvloop.run(serve(LiveServer(engine, front)))
        return
    source = open_source("@open-loop", ["fit.inferences=0"])
    unit = live_unit(read_inputs(source.scenario, Path.cwd(), source.document))
    with tempfile.TemporaryFile("w", buffering=1) as log:
        settings = GatewaySettings(unit, kind, {"cloud": server}, front, any_model=True)
        uvloop.run(serve(LiveGateway(settings, engine, log=log)))


async def latencies_s(url: str, rate_rps: float, seconds: float, seed: int) -> NDArray[np.float64]:
    count = int(rate_rps * seconds)
    offsets_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, count)).tolist()
    requests = [TranslateRequest((TEXT,), False, "de", "en", number=str(number)) for number in range(count)]
    async with TranslationClient(url, connections=0) as client:
        await send_load(Load(requests[:50], clients=4), [client])
        log = await send_load(Load(requests, offsets_s), [client])
    assert log.answered.all(), log.fault
    return log.latency_s


def measure(rounds: int, seconds: float) -> None:
    """Measure and print."""
    first, rest, *_ = sorted(os.sched_getaffinity(0)) * 2
    os.sched_setaffinity(0, {rest})
    latency_ms: dict[str, list[NDArray[np.float64]]] = {kind: [] for kind in RATES_RPS}
    with ExitStack() as stack:
        urls = {kind: f"http://127.0.0.1:{free_port()}" for kind in RATES_RPS}
        for kind, url in urls.items():
            program = [sys.executable, "-m", "benchmarks.gateway_overhead"]
            command = [*program, "--serve", kind, url.rpartition(":")[2], urls["server"]]
            stack.enter_context(running(f"gateway-{kind}", command, url, cores=[rest if kind == "server" else first]))
        used_cpus = [BusyWatch.over_span() or 0.0]
        for number in range(rounds):
            for kind, url in urls.items():
                latency_ms[kind].append(1e3 * run_precisely(latencies_s(url, RATES_RPS[kind], seconds, number)))
                used_cpus.append(BusyWatch.over_span() or 0.0)  # while nothing is sent, all services of this program are idle
    if max(used_cpus) > QUIET_SHARE * (os.cpu_count() or 1):
        print(f"No result: other programs used up to {max(used_cpus):.2f} CPUs. Repeat on a quiet box. Disturbed figures:")
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    for kind, runs in latency_ms.items():
        p50_ms, p99_ms = np.median([np.quantile(run, (0.5, 0.99)) for run in runs], axis=0).tolist()
        bar = f"; at most {BARS_MS[kind]:g} ms at p99" if kind in BARS_MS else ""
        print(f"{kind:10} {RATES_RPS[kind]:.0f} requests/s: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms{bar}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_with_echo(*options.serve)
    else:
        measure(options.rounds, options.seconds)
