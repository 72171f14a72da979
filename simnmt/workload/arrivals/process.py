"""The protocol of arrival processes, and those that users bring: a class with `times(n, rng)`, or an array of moments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import Self

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, misfit
from simnmt.base.extension import FAULTS, Extended, Extension, ExtensionError, describe_fault, is_callable_kind
from simnmt.workload import ArrivalsError

Times = NDArray[np.float64]
Discipline = Literal["back_to_back", "open", "closed"]


class RandomStream(np.random.Generator):
    """Random numbers of one purpose in one replication.

    It is made anew for each call, so that all policies meet the same numbers. Shipped kinds draw `by_block`, so that a longer
    run begins with exactly the shorter one.
    """

    def __init__(self, seed: int, replication: int, name: str) -> None:
        super().__init__(random_streams.bits(seed, replication, name))
        self.key = (seed, replication, name)

    @property
    def replication(self) -> int:
        """Number of the replication."""
        return self.key[1]

    def part(self, name: str) -> RandomStream:
        """Return the stream of a part of this purpose, whose numbers are independent of those of the whole."""
        seed, replication, purpose = self.key
        return RandomStream(seed, replication, f"{purpose}/{name}")

    def by_block(self, n: int, sample: Callable[[np.random.Generator, int], Times]) -> Times:
        """Draw `n` numbers, block by block; `sample(generator, k)` draws k numbers one after another."""
        return random_streams.draw(*self.key, n, sample)


class ArrivalProcess:
    """The times at which requests are issued; immutable and picklable. A shipped kind overrides what it draws."""

    __slots__ = ()

    @property
    def discipline(self) -> Discipline:
        """`open`: requests arrive at `times`, independent of the answers. `closed`: each client thinks, asks and waits for the
        answer. `back_to_back`: one client that never thinks; nothing is drawn."""
        return "open"

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests per second in the long run: the `rate_rps` of a kind that has one. None if the answers set the pace."""
        return getattr(self, "rate_rps", None)

    @property
    def period_s(self) -> float | None:
        """Length of the period of a rate that changes as is known in advance, from which all replications begin at the same
        point; None if there is no such period."""
        return None

    @property
    def requests_per_arrival(self) -> float:
        """Mean number of requests that are issued at once: the sentences of a document, else 1."""
        return 1.0

    @property
    def account(self) -> str:
        """Kind, origin, rate and burstiness: a sentence that begins in lower case, without a full stop."""
        raise NotImplementedError

    def at_rate(self, rate_rps: float) -> Self:
        """Return the process with this mean rate and the same random numbers; only if it has a `mean_rate_rps`."""
        raise NotImplementedError

    def times(self, n: int, rng: RandomStream) -> Times:
        """Return arrival times in seconds from the run's start, shape (n,), sorted; only for `open`."""
        raise NotImplementedError

    def think_times(self, n: int, rng: RandomStream) -> Times:
        """Return the seconds that each client thinks before its first request, and then those after each of `n` requests.

        Shape (clients + n,); only for `closed`.
        """
        raise NotImplementedError

    def size_ranks(self, n: int, rng: RandomStream) -> Times | None:
        """Return the share of requests, in [0, 1), that are shorter than request i, shape (n,), from a recorded trace.

        Request i then takes its lengths at that share of the corpus. None: the lengths are drawn from the corpus independently.
        """
        return None

    def engagements(self, n: int, rng: RandomStream) -> NDArray[np.int64] | None:
        """Return the number of request i's engagement, in the order of their beginnings, shape (n,).

        All turns of an engagement are issued at one end node. None: requests belong to no engagements.
        """
        return None

    def documents(self, n: int, rng: RandomStream) -> NDArray[np.int32] | None:
        """Return the number of the document that request i is a sentence of, ascending from 0, shape (n,).

        All sentences of a document are issued at one moment. None: requests are documents of their own.
        """
        return None

    def first_row(self, rng: RandomStream) -> int | None:
        """Return the row of a recorded log at which a replication begins; None for arrivals that replay no requests."""
        return None


DAY_S = 86_400.0


class ArrivalsConfiguration(Configuration):
    """Base of the configurations of all kinds; a kind that reads no file is its own process."""

    def process(self, base: Path) -> ArrivalProcess:
        """Return the process after reading its files; relative paths start at `base`. Raises `InputError`."""
        return cast(ArrivalProcess, self)

    def at_rate(self, rate_rps: float) -> Self:
        """Return the configuration of the process at this mean rate; itself if no key sets the rate."""
        return self

    def in_requests(self, characters_per_request: float | None) -> Self:
        """Return the configuration with its rate, if it has one, in requests per second.

        Raises `ArrivalsError` for a rate in characters if the mean characters of a request are not known.
        """
        return self


MONTH_S = 730.0 * 3600.0
"""A month of price lists: 730 hours."""
RATE_KEYS = ("rate_rps", "requests_per_month", "characters_per_day")


class RatedArrivals(ArrivalsConfiguration):
    """Base of the configurations that state a mean rate, in one of several units."""

    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Mean requests per second, over all end nodes. Left out: the rate is stated in another unit, or is that of a file or of
    steps."""
    requests_per_month: float | None = Field(default=None, ge=1.0, le=1e15)
    """The mean rate in requests per month of 730 hours, in place of `rate_rps`."""
    characters_per_day: float | None = Field(default=None, ge=1.0, le=1e15)
    """The mean rate in characters of the source per day, in place of `rate_rps`. The characters of a request are those of
    lengths counted by char, or the workload's `characters_per_request`."""

    @model_validator(mode="after")
    def _states_one_rate(self) -> Self:
        stated = [key for key in RATE_KEYS if getattr(self, key) is not None]
        if len(stated) > 1:
            raise misfit(stated[1], f"the rate is stated twice, also by {stated[0]} (give one of them)")
        return self

    @property
    def states_rate(self) -> bool:
        """True if it states a mean rate, in whatever unit."""
        return any(getattr(self, key) is not None for key in RATE_KEYS)

    @property
    def stated_rps(self) -> float:
        """The mean rate in requests per second, which `in_requests` has filled in."""
        assert self.rate_rps is not None
        return self.rate_rps

    def at_rate(self, rate_rps: float) -> Self:
        return self.model_copy(update={**dict.fromkeys(RATE_KEYS), "rate_rps": rate_rps})

    def in_requests(self, characters_per_request: float | None) -> Self:
        if self.requests_per_month is not None:
            return self.at_rate(self.requests_per_month / MONTH_S)
        if self.characters_per_day is None:
            return self
        if characters_per_request is None:
            what = "characters_per_day needs the characters of a request, which lengths in other units do not tell"
            remedy = "state characters_per_request of the workload, or count its lengths by char"
            raise ArrivalsError(what, remedy=remedy)
        return self.at_rate(self.characters_per_day / DAY_S / characters_per_request)


class FixedTimes:
    """Requests at given moments, the same in every replication."""

    def __init__(self, at_s: Any) -> None:
        self._at_s = np.asarray(at_s, dtype=np.float64)
        self.account = f"{len(self._at_s):,} moments given as an array"

    def times(self, n: int, rng: np.random.Generator) -> Times:
        return self._at_s[:n]


class CustomProcess(ArrivalProcess):
    """A user's process, which has `times(n, rng)`, with its draws checked; `mean_rate_rps` and `account` are optional."""

    __slots__ = ("_extension", "_process", "_times_as_fast")

    def __init__(self, extension: Extension, times_as_fast: float = 1.0) -> None:
        """Make the process. Raises `ExtensionError` for one without its methods."""
        made = extension.make()
        if isinstance(made, (list, tuple, np.ndarray)) or hasattr(made, "to_numpy"):
            try:
                made = FixedTimes(made)
            except (TypeError, ValueError):
                raise ExtensionError("no array of seconds", remedy="give sorted seconds from 0 on") from None
        self._extension, self._process, self._times_as_fast = extension, made, times_as_fast
        if not hasattr(made, "times"):
            what = f"{extension.label} has no times, so it is no arrival process"
            raise ExtensionError(what, remedy="write a class with times(n, rng), which returns sorted seconds")

    def __reduce__(self) -> Any:
        """Make the process anew in another Python process."""
        return CustomProcess, (self._extension, self._times_as_fast)

    @property
    def mean_rate_rps(self) -> float | None:
        rate_rps = getattr(self._process, "mean_rate_rps", None)
        return None if rate_rps is None else self._times_as_fast * float(rate_rps)

    @property
    def account(self) -> str:
        """The sentence of the process; its name if it has none."""
        return str(getattr(self._process, "account", None) or f"requests arrive by {self._extension.label}")

    def at_rate(self, rate_rps: float) -> CustomProcess:
        assert self.mean_rate_rps is not None
        return CustomProcess(self._extension, self._times_as_fast * rate_rps / self.mean_rate_rps)

    def times(self, n: int, rng: RandomStream) -> Times:
        try:
            times_s = np.asarray(self._process.times(n, rng), dtype=np.float64)
        except FAULTS as error:
            raise self._fault(f"times raised {describe_fault(error)}") from error
        if times_s.shape != (n,):
            raise self._fault(f"times returned the shape {times_s.shape}", f"return {n:,} seconds")
        if not (np.isfinite(times_s) & (times_s >= 0.0)).all():
            raise self._fault("times returned seconds that are negative or not finite")
        if (np.diff(times_s) < 0.0).any():
            raise self._fault("times returned moments out of order", "sort them")
        return times_s / self._times_as_fast

    def _fault(self, what: str, remedy: str | None = None) -> ExtensionError:
        return self._extension.fault(f"{self._extension.label}: {what}", remedy)


class CustomArrivals(Extended, ArrivalsConfiguration):
    """The configuration of arrivals that a user brings."""

    def process(self, base: Path) -> ArrivalProcess:
        return CustomProcess(self.extension)


def custom_arrivals(extension: Extension) -> CustomArrivals:
    """Return the configuration of a user's arrivals. Raises `ExtensionError` for an object that draws no times."""
    if not is_callable_kind(extension.value):
        CustomProcess(extension)
    return CustomArrivals.of(extension)
