"""Laws of scipy.stats that a scenario names: of numbers that are never negative and have a mean, or of counts of at least 1.

A `DrawnNumber` states its scale. Gaps and think times are scaled to a mean, so that they state `parameters` of the shape alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import ConfigDict, model_validator
from typing_extensions import Self

from simnmt.base.configuration import Configuration, misfit
from simnmt.base.suggestions import did_you_mean

_PLACE_AND_SCALE = ("loc", "scale")


def check_law(name: str, parameters: Mapping[str, float], *, key: str, scaled: bool = False, counts: bool = False) -> None:
    """Refuse a law that is unknown, lacks parameters, has negative numbers, or has a mean that no sample shows.

    Args:
        name: its name in scipy.stats, such as `lognorm`.
        parameters: its shape parameters by scipy's names.
        key: key of the name, which the fault of an unknown name gives; other faults give `parameters`, or no key if `scaled`.
        scaled: whether `loc` and `scale` may be among the parameters.
        counts: whether the law must be one of whole numbers of at least 1, which has no `scale`.

    Raises the error of a misfit.
    """
    from scipy import stats  # here, since it takes half a second

    beside = "" if scaled else "parameters"
    kind, examples = ("discrete", "geom, poisson, nbinom") if counts else ("continuous", "gamma, lognorm, weibull_min, pareto")
    of_kind = stats.rv_discrete if counts else stats.rv_continuous
    laws = {known: law for known, law in vars(stats).items() if isinstance(law, of_kind)}
    if name not in laws:
        raise misfit(key, f"scipy.stats has no {kind} distribution {name} ({did_you_mean(name, laws, f'e.g. {examples}')})")
    wanted = (laws[name].shapes or "").replace(",", " ").split()
    movable = _PLACE_AND_SCALE[: 1 if counts else 2] if scaled else ()
    if {*parameters}.difference(movable) != {*wanted}:
        needed = ", ".join(f"{parameter}: NUMBER" for parameter in wanted)
        optional = f" (and {', '.join(movable)})" if movable else ""
        raise misfit(beside, f"{name} needs {{{needed}}}{optional}" if wanted else f"{name} has no shape parameter{optional}")
    law, label = scipy_law(name, parameters), describe_law(name, parameters)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        least, mean = law.support()[0], law.mean()
        if math.isnan(least):
            raise misfit(beside, f"{label} does not exist (its parameters are those of scipy.stats.{name})")
        if counts and least < 1.0:
            raise misfit(key, f"{label} has numbers below 1 (move it by loc: {1.0 - least:g})")
        if least < 0.0:
            raise misfit(key, f"{label} has negative values (choose a law of positive numbers, e.g. gamma)")
        if not 0.0 < mean < math.inf:
            raise misfit(beside, f"{label} has no finite mean (choose parameters with a lighter tail)")
        # The mean is the quantile integrated over the rarity of a number, here over its logarithm, which is smooth.
        edge = np.linspace(math.log(1e-6), 0.0, 401)
        rarity = np.exp((edge[1:] + edge[:-1]) / 2)
        observable = (law.isf(rarity) * rarity).sum() * (edge[1] - edge[0])
    if not observable >= mean / 2:
        remedy = f"change {' or '.join(wanted)} for a lighter tail"
        raise misfit(beside, f"{label} has half of its mean from numbers rarer than one in a million ({remedy})")


def describe_law(name: str, parameters: Mapping[str, float]) -> str:
    """Return a law as text, such as `gamma (a = 0.5)`."""
    listed = ", ".join(f"{parameter} = {value:g}" for parameter, value in parameters.items())
    return f"{name} ({listed})" if listed else name


def scipy_law(name: str, parameters: Mapping[str, float]) -> Any:
    """Return the law of scipy.stats with these parameters."""
    return _frozen(name, tuple(parameters.items()))


@lru_cache
def _frozen(name: str, parameters: tuple[tuple[str, float], ...]) -> Any:
    from scipy import stats

    return getattr(stats, name)(**dict(parameters))


class DrawnNumber(Configuration):
    """A positive number that is drawn once: `{dist: lognorm, s: 0.5, scale: 40}`, by scipy's names of laws and parameters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    dist: str
    """Name of a distribution in scipy.stats, such as lognorm or uniform; its parameters, `loc` and `scale` stand beside it."""

    @model_validator(mode="after")
    def _is_positive_law(self) -> Self:
        check_law(self.dist, self.__pydantic_extra__, key="dist", scaled=True)
        return self

    def draw(self, generator: np.random.Generator) -> float:
        """Return one draw."""
        return float(scipy_law(self.dist, self.__pydantic_extra__).rvs(random_state=generator))

    def __str__(self) -> str:
        return describe_law(self.dist, self.__pydantic_extra__)
