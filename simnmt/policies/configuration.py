"""What a scenario says of its policies; one registry of kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.policies.estimates import ProbedEstimate, TransferEstimate


class EdgePolicy(Configuration):
    """Every request at the first device, where it is decided (GW-only)."""

    kind: Literal["edge"]


class CloudPolicy(Configuration):
    """Every request at the last device (Server-only)."""

    kind: Literal["cloud"]


class FixedPolicy(Configuration):
    """Every request at the device named."""

    kind: Literal["fixed"]
    device: Annotated[str, Field(min_length=1)]
    """Name of the device, as `devices` has it."""


class OraclePolicy(Configuration):
    """True times of every device for each request and the present transfer times; takes the least."""

    kind: Literal["oracle"]


class LastMeasured(Configuration):
    """The transfer time of the last offloaded request that was answered."""

    kind: Literal["last"]


class Smoothed(Configuration):
    """An exponentially weighted mean of what was measured."""

    kind: Literal["smoothed"]
    weight: Annotated[float, Field(gt=0.0, le=1.0)] = 0.125
    """Of each new measurement; 1 leaves the last one alone. TCP smooths its round-trip time with 1/8 (RFC 6298)."""


class Probing(Configuration):
    """A probe, a round trip without payload, whenever nothing was heard for an interval."""

    kind: Literal["probing"]
    interval_s: Annotated[float, Field(ge=0.01, le=1e6)] = 1.0
    """Silence after which a probe is sent."""
    weight: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Of each new measurement, a probe's or a request's; 1 leaves the last one alone."""


_SHORT_FORMS = ("last", "smoothed", "probing")


def _kind_alone(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _or_kind_alone(schema: dict[str, Any]) -> None:
    schema["oneOf"].append({"enum": list(_SHORT_FORMS), "type": "string"})


TransferEstimateConfiguration = Annotated[
    LastMeasured | Smoothed | Probing,
    Field(discriminator="kind", json_schema_extra=_or_kind_alone),
    BeforeValidator(_kind_alone),
]
"""`last`, `smoothed` or `probing`, or a mapping with one of these as its `kind`."""


class _Estimating(Configuration):
    """A policy that needs an estimate of the transfer time."""

    initial_transfer_ms: Annotated[float, Field(ge=0.0, le=1e7)] | None = None
    """The estimate before the first request was offloaded; left out: the RTT when the run begins, as if measured once."""
    transfer_estimate: TransferEstimateConfiguration = LastMeasured(kind="last")
    """How measurements of the transfer time become an estimate: `last` (the paper's), `smoothed` or `probing`."""
    sees_backlog: bool = False
    """Add the wait that the policy can see: its own device's queue, and at the others what it sent there itself."""
    plan_state: Literal["ignored", "known"] = "ignored"
    """What is reckoned of a device that streams its model from the disk: the plane, as if the planned model lay in memory, or
    with what its present state adds to that: its own device's as it is, another's as its answers told and as time went by."""


class NaivePolicy(_Estimating):
    """C-NMT's rule with one target length for all: the mean over the fit pairs."""

    kind: Literal["naive"]
    tgt_len: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Target tokens assumed for every request; left out: the mean of the fit pairs."""


class CNmtPolicy(_Estimating):
    """C-NMT: the rule with target lengths predicted from source lengths."""

    kind: Literal["cnmt"]
    len_slope: Annotated[float, Field(ge=-1e3, le=1e3)] | None = None
    """Target tokens per source token; left out: fitted on the fit pairs."""
    len_offset: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    """Target tokens of an empty source; left out: fitted on the fit pairs."""
    lengths: Literal["line", "distribution"] = "line"
    """What is learnt of target lengths: a line over the source length (the paper's), or their distribution for each."""
    minimises: Literal["mean", "p95"] = "mean"
    """The expected latency of each request, or its 95th percentile over the target lengths it may have."""
    batch: Literal["plain", "reported"] = "plain"
    """What is reckoned of a device that batches: the plane, as if each request were alone there, or with what its answers last
    reported of the batch in flight and of those that wait; with `sees_backlog` that is always so."""

    @model_validator(mode="after")
    def _lengths_that_suffice(self) -> CNmtPolicy:
        if self.minimises == "p95" and self.lengths == "line":
            what = "minimises: p95 needs to know how target lengths spread (write lengths: distribution beside it)"
            raise PydanticCustomError("needs_distribution", what)
        if self.lengths == "distribution" and (self.len_slope is not None or self.len_offset is not None):
            what = "lengths: distribution uses no line (remove len_slope and len_offset, or write lengths: line)"
            raise PydanticCustomError("line_not_used", what)
        return self


PolicyConfiguration = Annotated[
    EdgePolicy | CloudPolicy | FixedPolicy | OraclePolicy | NaivePolicy | CNmtPolicy, Field(discriminator="kind")
]
"""What a scenario may say of a policy."""

KINDS = ("edge", "cloud", "fixed", "oracle", "naive", "cnmt")
"""Names that `kind` may take; a policy that bears one of them as its name need not say its kind."""


def transfer_estimate(
    configuration: LastMeasured | Smoothed | Probing, initial_s: float, rtt_s: Callable[[float], float]
) -> TransferEstimate:
    """A new belief about one target's transfer time; `rtt_s`: the true round-trip time at a moment, for probes alone."""
    if isinstance(configuration, Probing):
        return ProbedEstimate(initial_s, configuration.interval_s, rtt_s, configuration.weight)
    return TransferEstimate(initial_s, configuration.weight if isinstance(configuration, Smoothed) else 1.0)
