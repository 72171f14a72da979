"""llama-server, built from source once, with a random model of 36 million parameters.

The model ends no output by itself: set `max_tokens`. A build takes about 15 minutes on two cores, and needs cmake, a C++
compiler and PyPI (or its mirror).
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.services.base import ServiceUnavailable, environment, free_port, made_by, make_once, run_step, running

SOURCE = "llama-cpp-python==0.3.36"
"""Its source distribution contains llama.cpp; nothing of the Python package itself is used."""
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
)  # fmt: skip


def program() -> Path:
    """Return the program llama-server, built if the cache does not have it."""
    return make_once("llama-server-" + SOURCE.rpartition("=")[2], _build) / "llama-server"


def _build(folder: Path) -> None:
    missing = [tool for tool in ("cmake", "c++", "make") if shutil.which(tool) is None]
    if missing:
        raise ServiceUnavailable(f"building llama-server needs {', '.join(missing)}: install build-essential and cmake")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"]
    run_step([*pip, "--dest", folder, SOURCE], f"downloading {SOURCE}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    (vendored,) = (folder / "source").glob("*/vendor/llama.cpp")
    build = folder / "build"
    run_step(["cmake", "-S", vendored, "-B", build, *OPTIONS], "configuring llama-server")
    jobs = str(len(os.sched_getaffinity(0)))
    run_step(["cmake", "--build", build, "--target", "llama-server", "-j", jobs], "compiling llama-server (about 15 minutes)")
    shutil.move(build / "bin/llama-server", folder)
    for rest in (folder / "source", build):
        shutil.rmtree(rest)
    archive.unlink()


def model() -> Path:
    """Return the random model, written if the cache does not have it."""
    writer = environment("gguf-0.19.0", "gguf==0.19.0")
    return made_by(writer, "random_gguf.py", "random-llama-36m") / "model.gguf"


@contextmanager
def llama_server(
    port: int = 0, slots: int = 4, threads: int = 1, context: int = 2048, pinned: bool = False, options: Sequence[str] = ()
) -> Iterator[str]:
    """Run llama-server on loopback and yield its URL (without /v1).

    Args:
        port: 0 is any free port.
        slots: requests that are decoded together.
        threads: of the processor.
        context: tokens of a slot, prompt and output together.
        pinned: on one core, with one thread.
        options: given to llama-server as they are.
    """
    url = f"http://127.0.0.1:{port or free_port()}"
    threads = 1 if pinned else threads
    command = [
        program(), "--model", model(), "--alias", "random-llama-36m", "--host", "127.0.0.1", "--port", url.rpartition(":")[2],
        "--parallel", slots, "--ctx-size", slots * context, "--no-kv-unified", "--threads", threads, "--threads-batch", threads,
        "--cont-batching", "--offline", *options,
    ]  # fmt: skip
    cores = sorted(os.sched_getaffinity(0))[-1:] if pinned else None
    with running("llama-server", [str(part) for part in command], url, cores=cores) as ready:
        yield ready
