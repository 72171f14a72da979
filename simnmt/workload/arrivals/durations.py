"""Random durations: any continuous scipy.stats distribution that is never negative and has a mean, and think times."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, form_by_key
from simnmt.base.suggestions import did_you_mean
from simnmt.workload.arrivals.process import Times

_SLOW = frozenset({"ksone", "kstwo"})
"""Laws of test statistics that take milliseconds per draw although they define an inverse."""


MAX_CV = 100.0
"""Greatest coefficient of variation; above it, the mean of a million draws still misses by a tenth."""
_MOST_UNSEEN = 0.5
"""Greatest share of the mean, of a law without a variance, beyond a million draws; a Pareto law reaches it at b = 1.05."""
_LIGHTER = "choose parameters with a lighter tail"


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution of durations, its location at 0."""

    distribution: str
    """Name of the distribution in scipy.stats."""
    shapes: tuple[float, ...]
    """Shape parameters, in scipy's order."""
    scale_s: float
    mean_s: float
    cv: float
    """Standard deviation over mean; infinite if there is no variance."""

    def draw(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Draw `size` independent durations in seconds; a longer draw with the same key begins with the shorter one."""
        rvs = _scipy(self.distribution).rvs

        def sample(generator: np.random.Generator, count: int) -> Times:
            # Always a whole block, cut to size: some laws draw two columns, and the second begins after the whole first.
            durations: Times = rvs(*self.shapes, size=random_streams.BLOCK, random_state=generator)
            return durations[:count] * self.scale_s

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # erlang warns of a shape that is no whole number, in every block
            return random_streams.draw(seed, replication, stream_name, size, sample)

    def __str__(self) -> str:
        shapes = zip(_shape_names(self.distribution), self.shapes, strict=True)
        parameters = ", ".join(f"{name} = {value:g}" for name, value in shapes)
        return f"{self.distribution} ({parameters})" if parameters else self.distribution


def law_of(distribution: str, parameters: dict[str, float], *, mean_s: float | None = None, scale_s: float = 1.0) -> Law:
    """Return the law of a `DistributionName` and its `Parameters` with the given mean, or else the given scale."""
    shapes = tuple(parameters[name] for name in _shape_names(distribution))
    mean, cv = _moments(distribution, shapes)
    scale_s = scale_s if mean_s is None else mean_s / mean
    return Law(distribution, shapes, scale_s, mean * scale_s, cv)


def _known(name: str) -> str:
    known = _names()
    if name not in known:
        remedy = did_you_mean(name, known, "e.g. gamma, lognorm, weibull_min, pareto")
        what = "scipy.stats has no continuous distribution {name} ({remedy})"
        raise PydanticCustomError("unknown_distribution", what, {"name": name, "remedy": remedy})
    return name


def _fitting(parameters: dict[str, float], info: ValidationInfo) -> dict[str, float]:
    """Return the parameters if they are those of the `distribution` and give durations with a mean."""
    name = info.data.get("distribution")
    if name is None:  # the distribution was refused
        return parameters
    wanted = _shape_names(name)
    for given in parameters:
        if given not in wanted:
            raise _refused(f"{name} has no parameter {given}", _remedy(given, wanted))
    missing = [parameter for parameter in wanted if parameter not in parameters]
    if missing:
        raise _refused(f"{name} needs {', '.join(missing)}", f"give {{{', '.join(f'{shape}: ...' for shape in missing)}}}")
    shapes = tuple(parameters[shape] for shape in wanted)
    values = ", ".join(f"{shape} = {value:g}" for shape, value in zip(wanted, shapes, strict=True))
    law = f"{name} with {values}" if values else name
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        least = _scipy(name).support(*shapes)[0]
    if math.isnan(least):
        raise _refused(f"{name} does not exist with {values}", "see scipy.stats for the range of its parameters")
    if least < 0:
        raise _refused(f"{law} can be negative, a duration cannot", "e.g. gamma, lognorm, weibull_min, truncnorm from 0 on")
    if not _is_fast(name):
        raise _refused(f"{name} takes milliseconds a draw", "e.g. gamma, lognorm, weibull_min, pareto")
    mean, cv = _moments(name, shapes)
    if not 0 < mean < math.inf:
        raise _refused(f"{law} has no finite mean above 0", _LIGHTER)
    if MAX_CV < cv < math.inf:
        raise _refused(f"{law} has coefficient of variation {cv:.1g}, above {MAX_CV:g}", _LIGHTER)
    if math.isinf(cv) and (unseen := 1 - _seen_share(name, shapes, mean)) > _MOST_UNSEEN:
        rare = f"{100 * unseen:.0f} % of its mean comes of draws rarer than one in a million"
        raise _refused(f"{law} has an infinite or immense variance, and {rare}", _LIGHTER)
    return parameters


DistributionName = Annotated[str, AfterValidator(_known)]
"""Name of a distribution in scipy.stats; precedes its `Parameters` in a configuration."""
Parameters = Annotated[dict[str, float], AfterValidator(_fitting)]
"""Shape parameters by scipy's names, checked against the `distribution` before them."""


def _refused(what: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError("unfit_distribution", "{what} ({remedy})", {"what": what, "remedy": remedy})


def _remedy(given: str, wanted: tuple[str, ...]) -> str:
    if given in ("loc", "scale"):
        return "loc stays 0, and the scale follows from the mean" if given == "loc" else "it follows from the mean"
    return did_you_mean(given, wanted, f"it has {', '.join(wanted) or 'none'}")


def _scipy(name: str) -> Any:
    from scipy import stats  # here, since it takes half a second

    return getattr(stats, name)


@lru_cache
def _names() -> tuple[str, ...]:
    from scipy import stats

    return tuple(name for name in dir(stats) if isinstance(getattr(stats, name), stats.rv_continuous))


def _shape_names(name: str) -> tuple[str, ...]:
    shapes = _scipy(name).shapes
    return tuple(shape.strip() for shape in shapes.split(",")) if shapes else ()


def _is_fast(name: str) -> bool:
    """Return whether the law defines a sampler or an inverse, so that draws need no root-finding."""
    from scipy import stats

    law_type = type(_scipy(name))
    return name not in _SLOW and any(
        getattr(law_type, method) is not getattr(stats.rv_continuous, method) for method in ("_rvs", "_ppf")
    )


@lru_cache
def _moments(name: str, shapes: tuple[float, ...]) -> tuple[float, float]:
    """Return the mean and the coefficient of variation at scale 1."""
    law = _scipy(name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mean, deviation = float(law.mean(*shapes)), float(law.std(*shapes))
    return mean, math.inf if math.isnan(deviation) else deviation / mean if mean else math.nan


def _seen_share(name: str, shapes: tuple[float, ...], mean: float) -> float:
    """Return the share of the mean that is due to draws more frequent than one in a million."""
    # Integrated over the logarithm of the rarity q, in which q times the quantile is smooth.
    edge = np.linspace(math.log(1e-6), 0.0, 401)
    rarity = np.exp((edge[1:] + edge[:-1]) / 2)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        quantile = _scipy(name).isf(rarity, *shapes)
    return float((quantile * rarity).sum() * (edge[1] - edge[0]) / mean)


class ConstantThinkTime(Configuration):
    """A think time that is always the same."""

    constant_s: float = Field(ge=0, le=1e9)
    """Think time in seconds; 0: the next request follows at once."""

    def draw(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return the same think time `size` times, in seconds."""
        return np.full(size, self.constant_s)

    def __str__(self) -> str:
        return f"always {self.constant_s:g} s"


class RandomThinkTime(Configuration):
    """Independent think times of any distribution that is continuous, never negative and has a mean."""

    mean_s: float = Field(ge=1e-9, le=1e9)
    """Mean think time in seconds; the distribution is scaled to it."""
    distribution: DistributionName = "expon"
    """Name of a distribution in scipy.stats."""
    parameters: Parameters = Field(default={}, validate_default=True)
    """Shape parameters of the distribution by scipy's names; the location is 0."""

    @property
    def _law(self) -> Law:
        return law_of(self.distribution, self.parameters, mean_s=self.mean_s)

    def draw(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return `size` independent think times, in seconds."""
        return self._law.draw(size, seed, replication, stream_name)

    def __str__(self) -> str:
        return f"{self._law}, mean {self.mean_s:g} s"


ThinkTime = Annotated[
    Annotated[ConstantThinkTime, Tag("ConstantThinkTime")] | Annotated[RandomThinkTime, Tag("RandomThinkTime")],
    Discriminator(
        form_by_key(RandomThinkTime, constant_s=ConstantThinkTime),
        custom_error_type="no_think_time",
        custom_error_message="expected a mapping: {constant_s: 1} or {mean_s: 2, distribution: expon}",
    ),
]
"""The values that a scenario may give under `think_time`."""
