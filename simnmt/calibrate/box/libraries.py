"""Versions of what decides the speed."""

from __future__ import annotations

import platform
from importlib import metadata

NAMES = ("simnmt", "torch", "transformers", "ctranslate2", "numpy", "sentencepiece", "nvidia-ml-py")


def versions() -> dict[str, str]:
    """Python's version and those of the installed libraries, by name; nothing is imported."""
    found = {name: version for name in NAMES if (version := _version(name)) is not None}
    return {"python": platform.python_version()} | found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError, TypeError):  # the last two: a damaged installation
        return None
