"""LibreTranslate with two packages of its own, de-en and en-de, whose model copies its input.

It starts without a network, but needs PyPI (or its mirror) the first time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.services.base import cache_folder, environment, free_port, made_by, running

RELEASE = "1.9.6"


def python() -> Path:
    """Return the Python of LibreTranslate's environment, made if the cache does not have it."""
    return environment(f"libretranslate-{RELEASE}", f"libretranslate=={RELEASE}", "onnx==1.23.2")


@contextmanager
def libretranslate(port: int = 0, threads: int = 4, pinned: bool = False, options: Sequence[str] = ()) -> Iterator[str]:
    """Run LibreTranslate on loopback and yield its URL.

    Args:
        port: 0 is any free port.
        threads: of its web server, hence the requests that it executes at once.
        pinned: on one core, with one thread of CTranslate2; else it runs as shipped.
        options: given to LibreTranslate as they are.
    """
    url = f"http://127.0.0.1:{port or free_port()}"
    packages = made_by(python(), "copying_packages.py", "copying-packages")
    home = cache_folder() / "libretranslate-home"
    command = [
        python().with_name("libretranslate"), "--host", "127.0.0.1", "--port", url.rpartition(":")[2], "--threads", threads,
        *options,
    ]  # fmt: skip
    one = "1" if pinned else None
    variables = {
        "ARGOS_PACKAGES_DIR": str(packages),
        **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "CONFIG", "CACHE")},
        "ARGOS_INTRA_THREADS": one,
        "OMP_NUM_THREADS": one,
    }
    cores = sorted(os.sched_getaffinity(0))[-1:] if pinned else None
    with running("libretranslate", [str(part) for part in command], url, variables, cores) as ready:
        yield ready
