"""A policy: settings that a scenario names, a rule that is prepared once, and decisions on plain floats.

A new policy is one file with its `PolicySettings`, with an import and an entry in `simnmt.policies`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.policies.estimates import LastMeasured, TransferEstimateSettings
from simnmt.profile.cost import Plane
from simnmt.profile.power import RequestCost
from simnmt.workload.length_regression import LengthRegression
from simnmt.workload.length_table import LengthTable

Resource = Literal["energy", "cost"]
"""What a request takes beside time: joules, or money."""

Decide = Callable[[int, Sequence[float]], int]
"""`decide(request, delay_s)`: return the target of a request, by its row in the prepared block; `delay_s[k]` is the present
estimate of all delays at target k other than execution. Targets are numbered in the order of `devices`; target 0 decides."""


class Policy(Protocol):
    """Chooses a target for each request, in two phases.

    A policy that assumes target lengths also has `predicted_tgt_len(src_len)`, in tokens.
    """

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """Compute what does not depend on the moment of a decision, for a block of requests; `src_len` in tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that is known of devices and lengths before the first request, from which a policy is made.

    Example:
        >>> class Eager:
        ...     def __init__(self, knowledge: simnmt.Knowledge) -> None:
        ...         self.planes, self.lengths = knowledge.planes, knowledge.lengths
        >>> simnmt.run({**scenario, "policies": {"eager": Eager}})  # doctest: +SKIP
    """

    devices: Sequence[str]
    planes: Sequence[Plane]
    """One per device, as fitted or from the profile."""
    fit_pairs: LengthTable
    lengths: LengthRegression
    """Fitted on these pairs."""
    costs: Mapping[Resource, Sequence[RequestCost]] = field(default_factory=dict)
    """By `energy` and `cost`, the joules and the money that a request takes on each device if it is executed alone, without
    what the boxes draw at all times; without what is unknown on some device."""


class Estimation(Configuration):
    """How a policy estimates its targets; with the defaults, for a policy that compares none."""

    initial_transfer_ms: Annotated[float, Field(ge=0.0, le=1e7)] | None = None
    """The estimate before the first request was offloaded; left out: the RTT when the run begins, as if measured once, plus the
    mean overheads of the devices beyond the decider."""
    transfer_estimate: TransferEstimateSettings = LastMeasured(kind="last")
    """How measurements of the transfer time become an estimate: `last` (the paper's), `smoothed` or `quantile`."""
    sees_backlog: bool = False
    """Add the wait that the policy can see: its own device's queue, and at other devices the requests that it sent there."""
    plan_state: Literal["ignored", "known"] = "ignored"
    """Estimate of a device that streams its model: by the plane, as if the planned model were in memory, or with the delay of
    its present state. The decider knows the state of its own device; it estimates another's from answers and the time since."""

    @property
    def hears_batches(self) -> bool:
        """Whether it uses the reports of devices that batch."""
        return self.sees_backlog


class PolicySettings(Configuration):
    """The settings of a policy in a scenario, from which the policy is made.

    Example:
        >>> class LongAway(simnmt.PolicySettings):
        ...     threshold: int = 20
        ...
        ...     def policy(self, knowledge: simnmt.Knowledge) -> Policy: ...
        >>> LongAway(threshold=12).threshold
        12
    """

    knows_truth: ClassVar[bool] = False
    """True if it knows true execution and transfer times, so that it cannot be deployed."""
    single_device: ClassVar[bool] = False
    """True if it sends every request to one device."""
    weighs_gain: ClassVar[bool] = False
    """True if it needs scores of translations (`policies.gains`)."""
    decides_again: ClassVar[bool] = False
    """True if it decides again when the first device has executed a request."""

    @property
    def is_deployable(self) -> bool:
        """False if it knows what no gateway knows."""
        return not self.knows_truth

    @property
    def reads_logprob(self) -> bool:
        """True if it decides by the log-probability of a translation."""
        return False

    @abstractmethod
    def policy(self, knowledge: Knowledge) -> Policy:
        """Return the policy."""

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the devices on which it may execute requests, of those of a scenario in their order."""
        return devices

    @property
    def estimation(self) -> Estimation:
        """How it estimates its targets."""
        return Estimation()

    def kept_lengths(self, knowledge: Knowledge, transfer_s: float) -> str:
        """Describe the source lengths that stay at the first of two devices; empty if no single length divides them."""
        return ""


class EstimatingPolicySettings(Estimation, PolicySettings):
    """Settings of a policy that compares estimates of its targets."""

    @property
    def estimation(self) -> Estimation:
        """The settings themselves."""
        return self


@dataclass(frozen=True, eq=False)
class LeastTotal:
    """The `Decide` for the target with the least execution plus delay; a tie goes to the target named first (CNMT-09).

    It is a column per target, so the compiled world decides by it without calling Python.
    """

    execution_s: Sequence[NDArray[np.float64]]
    """Seconds on each target, shape (requests,)."""

    @cached_property
    def _columns(self) -> list[list[float]]:
        # Single numbers are read from a list faster than from an array.
        return [np.asarray(column).tolist() for column in self.execution_s]

    def __call__(self, request: int, delay_s: Sequence[float]) -> int:
        """Return the target of a request."""
        totals_s = [column[request] + delay for column, delay in zip(self._columns, delay_s, strict=True)]
        return totals_s.index(min(totals_s))


@dataclass(frozen=True, slots=True)
class Fixed:
    """The `Decide` for one target, by its number; as a policy, GW-only with the first and Server-only with the last
    (CNMT-10)."""

    target: int

    def __call__(self, request: int, delay_s: Sequence[float]) -> int:
        return self.target

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        return self


@dataclass(frozen=True, slots=True)
class DecisionView:
    """What a policy with `decide_with_view(request, view)` sees at a decision; sequences have a value per target.

    Example:
        >>> def decide_with_view(request: int, view: DecisionView) -> int:
        ...     return int(view.backlog_s > view.delay_s[1])  # away if the gateway is busy for longer than the transfer takes
        >>> decide_with_view(0, DecisionView([0.0, 0.05], 9.0, 0.2, [0.0, 0.05], [0.0, 1.0], [None, None]))
        1
    """

    delay_s: Sequence[float]
    """What each target is believed to cost beside execution, seconds."""
    now_s: float
    """The moment of the decision, seconds since the run began."""
    backlog_s: float
    """Seconds until the decider's own device could start; NaN in the live gateway, and if its boxes are not of `FifoBox`."""
    rtt_s: Sequence[float]
    """The estimates of the transfer times; 0 for the decider's own device."""
    rtt_age_s: Sequence[float]
    """The time since each was measured."""
    reports: Sequence[float | None]
    """The wait that the last answer of each target reported, seconds; None before the first one."""
