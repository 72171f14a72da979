"""C-NMT: send a request to the target with the least predicted latency (CNMT-07, CNMT-09); Naive: the same with one length for
all requests (CNMT-10); and the source lengths at which the rule's choice changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.policies.decision import EstimatingPolicySettings, Knowledge, LeastTotal
from simnmt.profile.cost import Plane
from simnmt.workload.length_regression import LEAST_TGT_LEN, LengthDistribution, LengthRegression

PredictLength = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Returns the expected target tokens of source lengths; shape kept."""


class TimesAlone(Protocol):
    """A `Plane`, or what takes its place."""

    def seconds(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of requests alone."""
        ...


@dataclass(frozen=True, slots=True)
class CNmt:
    """The policy that chooses the target with the least predicted execution plus transfer time.

    Source: C-NMT, equations (1) and (2), for any number of targets. A tie goes to the target named first, which is the gateway.
    """

    planes: Sequence[TimesAlone]
    """One per target."""
    predict: PredictLength
    """The length regression's `predict` for C-NMT, `constant_length` for Naive, a distribution's `mean`."""
    percentiles: tuple[PredictLength, PredictLength] | None = None
    """Target lengths at the 5th and the 95th percentile: minimise the latter of each request's time instead of its mean."""

    def prepare(self, src_len: NDArray[np.int64]) -> LeastTotal:
        """Predict lengths and execution times once; each decision only adds the transfer estimate."""
        # A plane rises or falls with the target length all along, so its 95th percentile is its value at one of the two.
        tgt_lens = [predict(src_len) for predict in self.percentiles or (self.predict,)]
        by_target = [[plane.seconds(src_len, tgt_len) for tgt_len in tgt_lens] for plane in self.planes]
        return LeastTotal([np.maximum.reduce(columns) for columns in by_target])

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected target lengths."""
        return self.predict(src_len)


def constant_length(tgt_len: float) -> PredictLength:
    """Return the prediction of one target length for every request, which makes the rule Naive (CNMT-10)."""
    return lambda src_len: np.full(len(src_len), tgt_len)


Interval = tuple[float, float]


def kept_lengths(gateway: Plane, cloud: Plane, lengths: LengthRegression, transfer_s: float) -> list[Interval]:
    """Return the intervals of source lengths, from 1 token, for which the rule keeps a request at the gateway (CNMT-09).

    A tie stays at the gateway. The predicted length is a line that is never below one token, so the difference of both devices'
    times is a line with at most one bend, and there are two intervals at most.
    """
    bend = (LEAST_TGT_LEN - lengths.offset) / lengths.slope if lengths.slope else math.inf
    kept: list[Interval] = []
    for low, high in pairwise([1.0, bend, math.inf] if 1.0 < bend < math.inf else [1.0, math.inf]):
        inside = low + 1.0 if math.isinf(high) else 0.5 * (low + high)
        is_line = lengths.slope * inside + lengths.offset >= LEAST_TGT_LEN
        slope, offset = (lengths.slope, lengths.offset) if is_line else (0.0, LEAST_TGT_LEN)
        more_s_per_tgt_token = gateway.s_per_tgt_token - cloud.s_per_tgt_token
        more_s_per_token = gateway.s_per_src_token - cloud.s_per_src_token + more_s_per_tgt_token * slope
        cost_of_sending_s = transfer_s + cloud.s_fixed - gateway.s_fixed - more_s_per_tgt_token * offset
        if more_s_per_token > 0.0:
            high = min(high, cost_of_sending_s / more_s_per_token)
        elif more_s_per_token < 0.0:
            low = max(low, cost_of_sending_s / more_s_per_token)
        elif cost_of_sending_s < 0.0:
            continue
        if low < high or low == high == 1.0:
            first = kept.pop()[0] if kept and kept[-1][1] == low else low
            kept.append((first, high))
    return kept


class NaivePolicy(EstimatingPolicySettings):
    """C-NMT's rule with one target length for all: the mean over the fit pairs."""

    kind: Literal["naive"]
    tgt_len: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Target tokens assumed for every request; left out: the mean of the fit pairs."""

    def policy(self, knowledge: Knowledge) -> CNmt:
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
        gateway, cloud = knowledge.planes
        match kept_lengths(gateway, cloud, self.line(knowledge.lengths), transfer_s):
            case [(1.0, last), (first, _)]:
                return f"outside {last:.0f} and {first:.0f} tokens"
            case [(1.0, last)]:
                return "" if math.isinf(last) else f"up to {last:.0f} tokens"
            case [(first, last)]:
                return f"from {first:.0f} tokens" if math.isinf(last) else f"between {first:.0f} and {last:.0f} tokens"
        return ""
