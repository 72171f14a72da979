"""The registry of kernels, and its listing.

To add a kernel, write a generator of its cases and one entry in `KERNELS`.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from simnmt.base.compile import KERNEL_LIBRARY
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels import bench_cases, sharp_cases
from simnmt.kernels.cases import Kernel
from simnmt.kernels.native_library import LEVELS, NONE, VARIABLE, level_name, load, processor_features, supported

KERNELS = (
    Kernel(
        name="fused_best",
        meaning="bias, softmax and the best n columns of each row in one pass",
        source="FNI-03, FNI-05",
        reference="kernels.output_reference.reference_best",
        bound="1e-5 of a log-probability; the same columns, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements (FNI-02)",
        baselines=(bench_cases.IN_PLACE, bench_cases.COPY),
        cases=bench_cases.best_cases,
    ),
    Kernel(
        name="fused_argmax",
        meaning="bias and the best column of each row, without its probability",
        source="FNI-06",
        reference="kernels.output_reference.reference_best",
        bound="none: the same column, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements",
        baselines=(bench_cases.IN_PLACE, "torch add and argmax"),
        cases=bench_cases.argmax_cases,
    ),
    Kernel(
        name="int16_product",
        meaning="a few rows times packed weights in 16-bit fixed point",
        source="SHARP-05, SHARP-18",
        reference="numpy in float64",
        bound="kernels.packed_products.Scales.error_bound, by weights and inputs",
        cost="reads 2 bytes a weight; rows x weights multiply-adds",
        baselines=(sharp_cases.LIBRARY, sharp_cases.PACKED),
        cases=sharp_cases.int16_cases,
    ),
    Kernel(
        name="float32_product",
        meaning="the same in float32, packed alike: the baseline of 16 bits",
        source="SHARP-05",
        reference="numpy in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight; rows x weights multiply-adds",
        baselines=(sharp_cases.LIBRARY, sharp_cases.LINEAR),
        cases=sharp_cases.float32_cases,
    ),
    Kernel(
        name="gathered_product",
        meaning="nearest centroids, union, product with the active columns alone, search",
        source="FVP-05 to FVP-07, XP-02",
        reference="torch in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight of the active columns and of the centroids (FVP-09)",
        baselines=(bench_cases.DENSE, bench_cases.OWN_KERNEL),
        cases=bench_cases.gathered_cases,
    ),
    *(
        Kernel(
            name=function,
            meaning=f"{function} of many values by table or polynomial",
            source="SHARP-08",
            reference=f"{function} in float64",
            bound="kernels.activations.ERROR_BOUNDS, absolute",
            cost="reads and writes 4 bytes a value",
            baselines=(sharp_cases.MATH_LIBRARY, sharp_cases.TORCH),
            cases=partial(sharp_cases.activation_cases, function),
        )
        for function in ("tanh", "sigmoid")
    ),
    Kernel(
        name="sharp_decoder",
        meaning="a sentence's whole beam search, technique upon technique",
        source="SHARP-01, SHARP-11",
        reference="kernels.sharp.reference, in numpy and float64",
        bound="0.05 of a word's log-probability along a given translation; identities find the same words as the rung before",
        cost="every matrix once a step, beam x matrix multiply-adds (SHARP-13)",
        baselines=(sharp_cases.BASELINE, sharp_cases.BEFORE),
        cases=sharp_cases.ladder_cases,
        compiled_only=True,
    ),
    Kernel(
        name="unpack",
        meaning="a shard's codes of 2 to 6 bits to float32 weights in their places, outliers laid over them",
        source="STI-06",
        reference="numpy, bit by bit",
        bound="none: the same weights",
        cost="reads bits / 8 bytes and writes 4 bytes a weight",
        baselines=(bench_cases.TORCH, bench_cases.FEWEST_BITS),
        cases=bench_cases.unpack_cases,
    ),
    Kernel(
        name="triton_best",
        meaning="fused_best and fused_argmax on a GPU, in float32, float16 and bfloat16",
        source="FNI-03 to FNI-06",
        reference="torch in float64",
        bound="1e-6 of a row's log-sum, relative; the same columns",
        cost="reads V products a row and V biases",
        baselines=("torch's own sequence, in one graph", "copy of as many bytes"),
        cases=lambda threads: iter(()),
        device="cuda",
    ),
)


class UnknownKernel(InputError):
    """No kernel has this name."""


def kernel(name: str) -> Kernel:
    """Return the kernel of this name; raises `UnknownKernel`."""
    known = {registered.name: registered for registered in KERNELS}
    if name not in known:
        raise UnknownKernel(f"{name}: no such kernel", remedy=did_you_mean(name, known))
    return known[name]


@dataclass(frozen=True, slots=True)
class Listing:
    """The registry, and the kernels available on this box."""

    level: str
    """Compiled level in use; `none` if the fallbacks in torch and numpy are used."""
    compiled: tuple[str, ...]
    """Levels whose libraries are beside the package."""
    supported: tuple[str, ...]
    """Levels that the processor can run; empty without a library that reads the processor's features."""
    masked: str | None
    """Value of SIMNMT_KERNELS."""
    notes: tuple[str, ...]
    """Why compiled kernels are not used although their libraries exist."""
    triton: bool
    """True if Triton is installed, which the kernels for CUDA need."""
    kernels: tuple[Kernel, ...] = KERNELS

    def as_json(self) -> dict[str, Any]:
        """Return the listing for JSON, without the fields of a kernel that only the benchmark uses."""
        kernels = [asdict(kernel) for kernel in self.kernels]
        for kernel in kernels:
            del kernel["cases"], kernel["compiled_only"]
        return asdict(self) | {"kernels": kernels}

    def text(self) -> str:
        """Return the listing for a terminal."""
        if self.level == NONE:
            why = f"{VARIABLE}={self.masked}" if self.masked == NONE else f"nothing was compiled: {KERNEL_LIBRARY.remedy}"
            lines = [f"level: none, the fallbacks in torch and numpy are used{'' if self.notes else f' ({why})'}", *self.notes]
        else:
            masked = f"; {VARIABLE}={self.masked}" if self.masked else ""
            lines = [f"level: {self.level} of the compiled {', '.join(self.compiled)}{masked}"]
            lines.append(f"the processor has what these need: {', '.join(self.supported)}")
        lines.append(f"CUDA: Triton is {'' if self.triton else 'not '}installed")
        for kernel in self.kernels:
            device = " (CUDA)" if kernel.device == "cuda" else ""
            lines += ["", f"{kernel.name}{device}: {kernel.meaning} ({kernel.source})"]
            lines += [f"  against {kernel.baselines[0]}; {kernel.baselines[1]}"]
            lines += [f"  reference: {kernel.reference}", f"  error: {kernel.bound}", f"  cost: {kernel.cost}"]
        return "\n".join(lines)


def listing() -> Listing:
    """Return the listing of this box; opens the compiled kernels."""
    level = level_name()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        portable = load("portable")
    return Listing(
        level=level,
        compiled=tuple(level for level in LEVELS if KERNEL_LIBRARY.path(level).is_file()),
        supported=() if portable is None else supported(processor_features(portable.cdll)),
        masked=os.environ.get(VARIABLE),
        notes=tuple(str(warning.message) for warning in caught),
        triton=find_spec("triton") is not None,
    )
