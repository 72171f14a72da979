"""Make the files of a service once, start it as a process, wait until it is healthy, and stop it."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from simnmt.base.errors import SimnmtError

STOP_S = 15.0
"""Seconds that a service has to stop before it is killed."""


class ServiceUnavailable(SimnmtError):
    """A service cannot be made or started on this box."""


def cache_folder() -> Path:
    """Return the folder of all services: `simnmt/services` in XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simnmt" / "services"


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache, and fill it with `make` unless that was finished before.

    Other processes that want the folder wait meanwhile.
    """
    folder = cache_folder() / name
    complete = folder / ".complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder


def run_step(command: Sequence[str | Path], what: str, most_s: float = 3600.0) -> None:
    """Run a command at low priority; raise ServiceUnavailable with the line of its error if it fails."""
    print(f"{what} ...", file=sys.stderr, flush=True)
    process = subprocess.Popen(
        ["nice", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output = process.communicate(timeout=most_s)[0]
    except subprocess.TimeoutExpired:
        raise ServiceUnavailable(f"{what}: not finished after {most_s:.0f} s") from None
    finally:
        if process.poll() is None:
            stop(process)
    if process.returncode:
        lines = output.strip().splitlines() or [f"exit status {process.returncode}"]
        reason = next((line for line in lines if "error: " in line.lower()), lines[-1])
        raise ServiceUnavailable(f"{what}: {reason.strip()}")


def environment(name: str, *packages: str) -> Path:
    """Return the Python of an environment in the cache that has these packages of PyPI."""

    def make(folder: Path) -> None:
        run_step([sys.executable, "-m", "venv", folder], f"making the environment {name}")
        run_step([folder / "bin/pip", "install", "--quiet", *packages], f"installing {', '.join(packages)}")

    return make_once(name, make) / "bin/python"


def made_by(python: Path, script: str, name: str) -> Path:
    """Return a folder that `script FOLDER` of this package has filled, made again whenever the script has changed."""
    sources = [Path(__file__).with_name(file) for file in (script, "pieces.py")]
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    return make_once(f"{name}-{version}", lambda folder: run_step([python, sources[0], folder], f"writing {name}"))


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    url: str,
    variables: Mapping[str, str | None] | None = None,
    cores: Sequence[int] | None = None,
    most_s: float = 120.0,
) -> Iterator[str]:
    """Start a service, yield its URL once `/health` answers, and stop it with all its processes.

    Args:
        name: names the service, and its log file in the cache, which stays only after an error.
        command: program and arguments.
        url: where it will listen.
        variables: set for it in the environment; None removes one.
        cores: the only cores that it may use.
        most_s: seconds within which it must be healthy.
    """
    changed = {**os.environ, **(variables or {})}
    log = cache_folder() / f"{name}-{url.rpartition(':')[2]}.log"
    allowed = os.sched_getaffinity(0)
    if is_healthy(url):
        raise ServiceUnavailable(f"{name}: another service answers already at {url}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            if cores is not None:
                os.sched_setaffinity(0, cores)  # the service inherits it
            process = subprocess.Popen(
                list(map(str, command)), stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
                env={key: value for key, value in changed.items() if value is not None},
            )  # fmt: skip
        finally:
            os.sched_setaffinity(0, allowed)
    try:
        end = time.monotonic() + most_s
        while not is_healthy(url):
            if process.poll() is not None or time.monotonic() > end:
                state = "did not become healthy" if process.returncode is None else f"ended with status {process.returncode}"
                raise ServiceUnavailable(f"{name} {state}; its output is in {log}")
            time.sleep(0.1)
        yield url
    finally:
        stop(process)
    log.unlink(missing_ok=True)


def is_healthy(url: str) -> bool:
    """Return whether `/health` answers 200."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process that leads its own group, and all others of the group: politely, then by killing them."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve_until_stopped(service: AbstractContextManager[str]) -> int:
    """Run a service for the command line until SIGINT or SIGTERM; print its URL, or why it cannot run."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with service as url:
            print(url, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except ServiceUnavailable as error:
        print(error, file=sys.stderr)
    return 1
