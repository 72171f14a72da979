"""Packages of an installation: the versions that a run records, the extra that installs each, the error of a missing one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from simnmt.base.errors import InputError

LEFT_OUT = frozenset({"pandas", "pyarrow", "scipy", "plotly", "jinja2", "markupsafe"})
"""Dependencies that the light installation of a gateway leaves out (docs/reference/boxes.md); they weigh most."""

EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "sentencepiece", "sacrebleu", "sklearn", "threadpoolctl"), "models"),
    **dict.fromkeys(("safetensors", "huggingface_hub"), "models"),
    **dict.fromkeys(("aiohttp", "uvloop", "prometheus_client"), "live"),
    **{name: name for name in ("tokenizers", "ctranslate2")},
    "pynvml": "nvidia",
    "distributed": "cluster",
    "redis": "redis",
}
"""The extra of simnmt that installs each optional package."""

TORCH_WITHOUT_GPU = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""Installs torch for CPUs. The default build of torch for Linux brings CUDA, several GB."""


def install_command(extra: str) -> str:
    """Return what installs an extra, on a box without a GPU too."""
    command = f"pip install 'simnmt[{extra}]'"
    return f"without a GPU first {TORCH_WITHOUT_GPU}, then {command}" if extra in {"models", "live"} else command


RECORDED = ("numpy", "pandas", "plotly", "pyarrow", "pydantic", "scipy", "simpy")
"""Libraries whose versions a run records."""


@cache
def library_versions() -> Mapping[str, str]:
    """Return the versions of the libraries that a run records, read once: they take 6 ms, a tenth of a small run."""
    from importlib.metadata import version  # only runs need it

    return {name: version(name) for name in RECORDED}


class MissingPackage(InputError):
    """A package that is needed here is not installed."""


@contextmanager
def named_if_missing(extra: str | None = None) -> Iterator[None]:
    """Raise `MissingPackage`, with the remedy, where an import within fails since a package of simnmt is not installed.

    `extra`: the extra that installs all packages that are imported within; None: the one of the package that is missing. Also
    a decorator of functions.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in LEFT_OUT:
            remedy = "pip install simnmt, with its dependencies"
        elif package in EXTRAS or (extra and package and package != "simnmt"):
            remedy = install_command(extra or EXTRAS[package])
        else:
            raise
        raise MissingPackage(f"this needs the package {package}", remedy=remedy) from None
