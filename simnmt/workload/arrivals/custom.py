"""Arrival processes that users write in Python, and arrays of moments; their draws are checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.extension import FAULTS, Extended, Extension, ExtensionError, describe_fault
from simnmt.workload.arrivals.process import ArrivalProcess, ArrivalsConfiguration, Discipline, OpenProcess, Times

METHOD = "times(size, seed, replication, stream_name), which returns sorted seconds"
"""What an arrival process must have."""


class FixedTimes(OpenProcess):
    """Requests at given moments, the same in every replication."""

    __slots__ = ("_at_s",)

    def __init__(self, at_s: Times) -> None:
        self._at_s = at_s

    @property
    def account(self) -> str:
        """The number of moments."""
        return f"{len(self._at_s):,} moments given as an array"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return the first moments. Raises `ExtensionError` if there are too few."""
        if size > len(self._at_s):
            raise ExtensionError(
                f"{len(self._at_s):,} moments for {size:,} requests", remedy="give as many moments, or fewer requests"
            )
        return self._at_s[:size]


class CustomProcess:
    """A user's arrival process, with what it does not define itself, and with its draws checked."""

    __slots__ = ("_extension", "_label", "_process", "_times_as_fast")

    def __init__(self, extension: Extension, base: Path, times_as_fast: float = 1.0) -> None:
        """Make the process. Raises `ExtensionError` for one without its methods."""
        made = extension.make()
        if isinstance(made, ArrivalsConfiguration):
            made = made.process(base)
        if isinstance(made, np.ndarray):
            made = FixedTimes(np.asarray(made, dtype=np.float64))
        self._extension, self._label, self._process = (extension, base), extension.label, made
        self._times_as_fast = times_as_fast
        _check_process(made, extension.label)

    def __reduce__(self) -> Any:
        """Make the process anew in another process."""
        return CustomProcess, (*self._extension, self._times_as_fast)

    @property
    def discipline(self) -> Discipline:
        """That of the user's process; `open` if it states none."""
        discipline: Discipline = getattr(self._process, "discipline", "open")
        return discipline

    @property
    def clients(self) -> int:
        """Number of clients in a closed loop."""
        return int(getattr(self._process, "clients", 0))

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests per second in the long run; None if the process states none."""
        rate = getattr(self._process, "mean_rate_rps", None)
        return None if rate is None else self._times_as_fast * float(rate)

    def at_rate(self, rate_rps: float) -> CustomProcess:
        """Return the process with all times scaled, so that its mean rate is this one."""
        assert self.mean_rate_rps is not None
        return CustomProcess(*self._extension, self._times_as_fast * rate_rps / self.mean_rate_rps)

    @property
    def account(self) -> str:
        """The sentence of the process; its name if it has none."""
        return str(getattr(self._process, "account", None) or f"requests arrive by {self._label}")

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times, checked. Raises `ExtensionError`."""
        times_s = self._seconds("times", size, seed, replication, stream_name)
        if (np.diff(times_s) < 0.0).any():
            raise self._fault("times returned moments out of order", "sort them")
        return times_s / self._times_as_fast

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return the seconds that clients think, checked. Raises `ExtensionError`."""
        return self._seconds("think_times", size, seed, replication, stream_name)

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """Return those of the process; None if it has none."""
        ranks: Times | None = self._optional("size_ranks", size, seed, replication, stream_name)
        return ranks

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64] | None:
        """Return those of the process; None if it has none."""
        numbers: NDArray[np.int64] | None = self._optional("engagements", size, seed, replication, stream_name)
        return numbers

    def _seconds(self, method: str, size: int, *key: object) -> Times:
        drawn = self._called(getattr(self._process, method, None), method, size, *key)
        try:
            seconds = np.asarray(drawn, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._fault(f"{method} returned no array of seconds") from None
        what = f"{method} returned no {size:,} finite seconds from 0 on"
        if seconds.shape != (size,):
            raise self._fault(what, f"it returned the shape {seconds.shape}; return the shape ({size},)")
        valid = np.isfinite(seconds) & (seconds >= 0.0)
        if not valid.all():
            at = int(np.argmin(valid))
            raise self._fault(what, f"value {at} is {seconds[at]}; return finite seconds from 0 on")
        return seconds

    def _optional(self, method: str, *arguments: object) -> Any:
        function = getattr(self._process, method, None)
        return None if function is None else self._called(function, method, *arguments)

    def _called(self, function: Callable[..., Any] | None, method: str, *arguments: object) -> Any:
        if function is None:
            raise self._fault(f"has no method {method}")
        try:
            return function(*arguments)
        except ExtensionError as error:
            raise self._fault(error.what, error.remedy) from error
        except FAULTS as error:
            raise self._fault(f"{method} raised {describe_fault(error)}") from error

    def _fault(self, what: str, remedy: str | None = None) -> ExtensionError:
        extension, _ = self._extension
        return extension.fault(f"{self._label}: {what}", remedy)


class CustomArrivals(Extended, ArrivalsConfiguration):
    """The configuration of arrivals that a user brings."""

    def process(self, base: Path) -> ArrivalProcess:
        """Return the process. Raises `ExtensionError`."""
        return CustomProcess(self.extension, base)


def custom_arrivals(extension: Extension) -> CustomArrivals:
    """Return the configuration of a user's arrivals. Raises `ExtensionError` for a class that draws no times."""
    value = extension.value
    if isinstance(value, (list, tuple)) or hasattr(value, "to_numpy"):
        extension = Extension(np.asarray(value), extension.label)
        value = extension.value
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or value.dtype.kind not in "iuf" or not len(value):
            raise ExtensionError("an array of arrivals has one column of seconds", remedy="give sorted seconds from 0 on")
    elif isinstance(value, type) or not callable(value):
        _check_process(value, extension.label)
    return CustomArrivals.of(extension)


def _check_process(process: Any, label: str) -> None:
    discipline = getattr(process, "discipline", "open")
    if isinstance(process, type) and issubclass(process, ArrivalsConfiguration):
        return
    if isinstance(discipline, str) and discipline not in ("open", "closed"):
        raise ExtensionError(f"{label}: the discipline {discipline}", remedy="arrivals of your own are open or closed")
    method = "think_times" if discipline == "closed" else "times"
    if not callable(getattr(process, method, None)):
        what = f"{label} has no method {method}, so it is no arrival process"
        raise ExtensionError(what, remedy=f"write a class with {METHOD}")
