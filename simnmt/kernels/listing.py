"""What kernels there are, and which compiled level of them this processor takes."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from simnmt.kernels import levels
from simnmt.kernels.cases import KERNELS
from simnmt.kernels.compile import library_path
from simnmt.kernels.contract import Kernel
from simnmt.kernels.native_library import REMEDY, library, load, processor_features


@dataclass(frozen=True, slots=True)
class Listing:
    """The registry, and where it stands on this box."""

    level: str | None
    """Compiled level in use; None: the fallbacks in torch and numpy are."""
    compiled: tuple[str, ...]
    """Levels that lie beside the package."""
    supported: tuple[str, ...]
    """Levels that the processor could run; empty where no library is there to ask it."""
    masked: str | None
    """What SIMNMT_KERNELS says."""
    notes: tuple[str, ...]
    """Why compiled kernels that are there are not used."""
    triton: bool
    """Whether Triton is installed, which the kernels for CUDA need."""
    kernels: tuple[Kernel, ...] = KERNELS

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        of_kernels = [
            {name: getattr(kernel, name) for name in _FIELDS} | {"baselines": list(kernel.baselines)} for kernel in self.kernels
        ]
        return {
            "level": self.level or levels.NONE,
            "compiled": list(self.compiled),
            "supported": list(self.supported),
            "masked": self.masked,
            "notes": list(self.notes),
            "triton": self.triton,
            "kernels": of_kernels,
        }

    def text(self) -> str:
        """For a person."""
        if self.level is None:
            why = f"{levels.VARIABLE}={self.masked}" if self.masked == levels.NONE else f"nothing was compiled: {REMEDY}"
            lines = [
                "level: none, the fallbacks in torch and numpy are used" + ("" if self.notes else f" ({why})"),
                *self.notes,
            ]
        else:
            masked = f"; {levels.VARIABLE}={self.masked}" if self.masked else ""
            lines = [f"level: {self.level} of the compiled {', '.join(self.compiled)}{masked}"]
            lines.append(f"the processor has what these need: {', '.join(self.supported)}")
        lines.append(f"CUDA: {'Triton is installed' if self.triton else 'Triton is not installed'}")
        for kernel in self.kernels:
            where = " (CUDA)" if kernel.device == "cuda" else ""
            lines += ["", f"{kernel.name}{where}: {kernel.meaning} ({kernel.source})"]
            lines += [f"  against {kernel.baselines[0]}; {kernel.baselines[1]}"]
            lines += [f"  reference: {kernel.reference}", f"  error: {kernel.bound}", f"  cost: {kernel.cost}"]
        return "\n".join(lines)


_FIELDS = ("name", "meaning", "source", "reference", "bound", "cost", "device")


def listing() -> Listing:
    """Look at this box; loads the compiled kernels."""
    native = library()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        portable = load("portable")
    return Listing(
        level=None if native is None else native.level,
        compiled=tuple(level for level in levels.LEVELS if library_path(level).is_file()),
        supported=() if portable is None else levels.supported(processor_features(portable.cdll)),
        masked=os.environ.get(levels.VARIABLE),
        notes=tuple(str(warning.message) for warning in caught),
        triton=find_spec("triton") is not None,
    )
