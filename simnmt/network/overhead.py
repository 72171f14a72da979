"""The overhead of a device: the time that a request costs there beside queue, execution and link.

A service reads the request, counts its tokens, decides, passes it from process to process, and writes the answer. The times
vary from request to request and have a tail, so an overhead is a distribution, whose mean is known in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import exp, log1p, sqrt
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator, field_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration

Seconds = NDArray[np.float64]
Milliseconds = Annotated[float, Field(ge=0.0, le=1e6)]
_MILLISECONDS: TypeAdapter[float] = TypeAdapter(Milliseconds)


class ConstantOverhead(Configuration):
    """The same overhead for every request; in a scenario also a plain number of milliseconds."""

    constant_ms: Milliseconds
    """The overhead, ms."""

    @property
    def mean_s(self) -> float:
        """Mean, seconds."""
        return self.constant_ms / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        """Return the overhead of each request, shape (count,), seconds."""
        return np.full(count, self.mean_s)

    def describe(self) -> str:
        """Return the distribution as text."""
        return f"{self.constant_ms:.4g} ms a request"


class LognormalOverhead(Configuration):
    """A lognormal overhead: positive and skewed to the right."""

    mean_ms: Annotated[float, Field(ge=1e-6, le=1e6)]
    """Mean, ms."""
    sd_ms: Milliseconds
    """Standard deviation, ms."""

    @property
    def mean_s(self) -> float:
        """Mean, seconds."""
        return self.mean_ms / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        """Draw the overhead of each request, shape (count,), seconds."""
        variance = log1p((self.sd_ms / self.mean_ms) ** 2)
        median_s = self.mean_s * exp(-variance / 2.0)
        drawn_s: Seconds = median_s * np.exp(sqrt(variance) * generator.standard_normal(count))
        return drawn_s

    def describe(self) -> str:
        """Return the distribution as text."""
        return f"lognormal with mean {self.mean_ms:.4g} ms and standard deviation {self.sd_ms:.4g} ms"


class EmpiricalOverhead(Configuration):
    """A measured overhead, as its quantiles at evenly spaced shares from 0 to 1; linear in between.

    Such are `numpy.quantile(measured_ms, numpy.linspace(0, 1, 101))`, and the sorted measurements themselves.
    """

    quantiles_ms: Annotated[list[Milliseconds], Field(min_length=2, max_length=100_000)]
    """The least, the greatest, and those between them in steps of the same share; never decreasing. Few quantiles make the
    tail too heavy; 101 or more keep the mean of a heavy tail."""

    @field_validator("quantiles_ms")
    @classmethod
    def _do_not_decrease(cls, quantiles_ms: list[float]) -> list[float]:
        for place, (before, after) in enumerate(pairwise(quantiles_ms), start=2):
            if after < before:
                what = f"quantiles must not decrease, but number {place} is {after:g} after {before:g} (sort them)"
                raise PydanticCustomError("quantiles_decrease", what)
        return quantiles_ms

    @property
    def mean_s(self) -> float:
        """Mean, seconds."""
        first, *between, last = self.quantiles_ms
        return (first / 2.0 + sum(between) + last / 2.0) / (len(between) + 1) / 1e3

    def draw_s(self, generator: np.random.Generator, count: int) -> Seconds:
        """Draw the overhead of each request, shape (count,), seconds."""
        shares = np.linspace(0.0, 1.0, len(self.quantiles_ms))
        drawn_s: Seconds = np.interp(generator.random(count), shares, np.array(self.quantiles_ms) / 1e3)
        return drawn_s

    def describe(self) -> str:
        """Return the distribution as text."""
        quantiles_ms = self.quantiles_ms
        return (
            f"drawn from {len(quantiles_ms):,} quantiles of a measurement, {quantiles_ms[0]:.4g} to {quantiles_ms[-1]:.4g} ms "
            f"with mean {self.mean_s * 1e3:.4g} ms"
        )


Overhead = ConstantOverhead | LognormalOverhead | EmpiricalOverhead


def _one_form(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    # A plain union reports an error for each form; here only those of the form that was meant.
    if isinstance(value, Overhead):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ConstantOverhead(constant_ms=_MILLISECONDS.validate_python(value))
    if isinstance(value, Mapping):
        form: type[Overhead] = LognormalOverhead
        if "quantiles_ms" in value:
            form = EmpiricalOverhead
        elif "constant_ms" in value:
            form = ConstantOverhead
        return form.model_validate(value)
    raise ValueError("give a number of ms without a unit, {mean_ms: 0.8, sd_ms: 0.2} or {quantiles_ms: [0.5, 0.7, 1.9]}")


OverheadConfiguration = Annotated[Overhead, WrapValidator(_one_form, json_schema_input_type=Milliseconds | Overhead)]
"""`0.8` (ms), `{constant_ms: 0.8}`, `{mean_ms: 0.8, sd_ms: 0.2}` or `{quantiles_ms: [0.5, 0.7, 1.9]}`."""
