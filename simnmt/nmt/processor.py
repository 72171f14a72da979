"""What an engine must know of the processor: its name, and whether it multiplies short floats."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Linux' names for the instructions, the last on ARM."""


@cache
def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in reversed(lines) if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_name() -> str:
    """The processor's model as the system names it."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; without, libraries emulate it, slower than float32."""
    info = _cpuinfo()
    return not _BFLOAT16.isdisjoint((info.get("flags") or info.get("Features") or "").split())
