"""C-NMT: send a request to the target with the least predicted latency (CNMT-07, CNMT-09); Naive: the same with one length for
all requests (CNMT-10); and the source lengths at which the rule's choice changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.policies.decision import Decide, EstimatingPolicySettings, Knowledge, least_total
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.workload.length_regression import LEAST_TGT_LEN, LengthDistribution, LengthRegression

PredictLength = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Returns the expected target tokens of source lengths; shape kept."""


@dataclass(frozen=True, slots=True)
class CNmt:
    """The policy that chooses the target with the least predicted execution plus transfer time.

    Source: C-NMT, equations (1) and (2), for any number of targets. A tie goes to the target named first, which is the gateway.
    """

    planes: Sequence[ExecutionPlane]
    """One per target."""
    predict: PredictLength
    """The length regression's `predict` for C-NMT, `constant_length` for Naive, a distribution's `mean`."""
    percentiles: tuple[PredictLength, PredictLength] | None = None
    """Target lengths at the 5th and the 95th percentile: minimise the latter of each request's time instead of its mean."""

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """Predict lengths and execution times once; each decision only adds the transfer estimate."""
        return least_total(self.weighed_s(src_len))

    def weighed_s(self, src_len: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Return the seconds by which targets are compared, without delays; one column per target, shape of `src_len`."""
        if self.percentiles is None:
            return self.execution_s(src_len)
        low, high = (predict(src_len) for predict in self.percentiles)
        # A plane rises or falls with the target length all along, so its 95th percentile is its value at one of the two.
        return [np.maximum(plane.seconds(src_len, low), plane.seconds(src_len, high)) for plane in self.planes]

    def execution_s(self, src_len: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Return the expected seconds of execution, one column per target, shape of `src_len`.

        The rule compares them unless it minimises a percentile; a request adds them to a queue in either case.
        """
        tgt_len = self.predict(src_len)
        return [plane.seconds(src_len, tgt_len) for plane in self.planes]

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected target lengths."""
        return self.predict(src_len)


def constant_length(tgt_len: float) -> PredictLength:
    """Return the prediction of one target length for every request, which makes the rule Naive (CNMT-10)."""
    return lambda src_len: np.full(len(src_len), tgt_len)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The source lengths for which the rule keeps a request at the gateway."""

    kept: Literal["up to", "from", "between", "outside", "always", "never"]
    """`up to` or `from` `src_len`; `between` `src_len` and `upper`, or `outside` of them; or whatever the length."""
    src_len: float
    """Tokens; NaN if the choice does not depend on the length."""
    upper: float = math.nan
    """Tokens; NaN with one border at most."""


def threshold(
    gateway: ExecutionPlane, cloud: ExecutionPlane, len_slope: float, len_offset: float, transfer_s: float
) -> Threshold:
    """Return the source lengths at which gateway and cloud take equally long under the length regression (CNMT-09).

    A tie stays at the gateway. The predicted length is a line that is never below one token, so the difference of both devices'
    times is a line with at most one bend, and the choice changes at most twice. Lengths below 1 are left out: no request has
    them.
    """
    bend = (LEAST_TGT_LEN - len_offset) / len_slope if len_slope else math.inf
    knots = [1.0, bend, math.inf] if 1.0 < bend < math.inf else [1.0, math.inf]
    borders: list[float] = []
    state = begins_kept = False
    for number, (low, high) in enumerate(pairwise(knots)):
        inside = low + 1.0 if math.isinf(high) else 0.5 * (low + high)
        clamped = len_slope * inside + len_offset < LEAST_TGT_LEN
        slope, offset = (0.0, LEAST_TGT_LEN) if clamped else (len_slope, len_offset)
        per_tgt_token = gateway.s_per_tgt_token - cloud.s_per_tgt_token
        per_src_token = (gateway.s_per_src_token - cloud.s_per_src_token) + per_tgt_token * slope
        cost_of_sending = transfer_s + cloud.s_fixed - gateway.s_fixed - per_tgt_token * offset
        if number == 0:
            state = begins_kept = per_src_token * low <= cost_of_sending
        # Ever farther along this part, a difference that grows ends the keeping, and one that falls begins it.
        turns = per_src_token > 0.0 if state else per_src_token < 0.0
        border = cost_of_sending / per_src_token if turns else math.inf
        if max(border, low) < high:
            borders.append(max(border, low))
            state = not state
    if not borders:
        return Threshold("always" if begins_kept else "never", math.nan)
    if len(borders) == 1:
        return Threshold("up to" if begins_kept else "from", borders[0])
    return Threshold("outside" if begins_kept else "between", borders[0], borders[1])


class NaivePolicy(EstimatingPolicySettings):
    """C-NMT's rule with one target length for all: the mean over the fit pairs."""

    kind: Literal["naive"]
    tgt_len: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Target tokens assumed for every request; left out: the mean of the fit pairs."""

    def policy(self, knowledge: Knowledge) -> CNmt:
        """Return the policy."""
        return CNmt(
            knowledge.planes, constant_length(knowledge.fit_pairs.mean_tgt_len if self.tgt_len is None else self.tgt_len)
        )


class CNmtPolicy(EstimatingPolicySettings):
    """C-NMT's rule with target lengths predicted from source lengths."""

    kind: Literal["cnmt"]
    len_slope: Annotated[float, Field(ge=-1e3, le=1e3)] | None = None
    """Target tokens per source token; left out: fitted on the fit pairs."""
    len_offset: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    """Target tokens of an empty source; left out: fitted on the fit pairs."""
    lengths: Literal["line", "distribution"] = "line"
    """Model of target lengths: a line over the source length (the paper's), or their distribution for each source length."""
    minimises: Literal["mean", "p95"] = "mean"
    """The expected latency of each request, or its 95th percentile over the possible target lengths."""
    batch: Literal["plain", "reported"] = "plain"
    """Estimate of a device that batches: the plane, as if each request were alone there, or with its last reports of the batch
    in flight and of the queue; with `sees_backlog` the reports are always used."""

    @model_validator(mode="after")
    def _lengths_that_suffice(self) -> CNmtPolicy:
        if self.minimises == "p95" and self.lengths == "line":
            what = "minimises: p95 needs to know how target lengths spread (write lengths: distribution beside it)"
            raise PydanticCustomError("needs_distribution", what)
        if self.lengths == "distribution" and (self.len_slope is not None or self.len_offset is not None):
            what = "lengths: distribution uses no line (remove len_slope and len_offset, or write lengths: line)"
            raise PydanticCustomError("line_not_used", what)
        return self

    @property
    def hears_batches(self) -> bool:
        """Whether it uses the reports of devices that batch."""
        return self.sees_backlog or self.batch == "reported"

    def line(self, fitted: LengthRegression) -> LengthRegression:
        """Return the line of the rule: the coefficients that are set, and the fitted ones in place of others."""
        slope, offset = self.len_slope, self.len_offset
        return LengthRegression(fitted.slope if slope is None else slope, fitted.offset if offset is None else offset)

    def policy(self, knowledge: Knowledge) -> CNmt:
        """Return the policy."""
        if self.lengths == "line":
            return CNmt(knowledge.planes, self.line(knowledge.lengths).predict)
        lengths = LengthDistribution.of(knowledge.fit_pairs)
        if self.minimises != "p95":
            return CNmt(knowledge.planes, lengths.mean)
        low, high = (partial(lengths.quantile, q=share) for share in (0.05, 0.95))
        return CNmt(knowledge.planes, lengths.mean, (low, high))

    def kept_lengths(self, knowledge: Knowledge, transfer_s: float) -> str:
        """Describe the source lengths that stay at the first of two devices; empty if no single length divides them."""
        if self.lengths != "line" or len(knowledge.planes) != 2:
            return ""
        (gateway, cloud), line = knowledge.planes, self.line(knowledge.lengths)
        border = threshold(gateway, cloud, line.slope, line.offset, transfer_s)
        if border.kept in ("up to", "from"):
            return f"{border.kept} {border.src_len:.0f} tokens"
        two = border.kept in ("between", "outside")
        return f"{border.kept} {border.src_len:.0f} and {border.upper:.0f} tokens" if two else ""
