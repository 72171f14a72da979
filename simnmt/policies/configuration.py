"""What a scenario says of its policies; one registry of kinds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simnmt.configuration import Configuration


class EdgePolicy(Configuration):
    """Every request at the gateway (GW-only)."""

    kind: Literal["edge"]


class CloudPolicy(Configuration):
    """Every request in the cloud (Server-only)."""

    kind: Literal["cloud"]


class OraclePolicy(Configuration):
    """True times of both devices for each request and the present transfer time; takes the least."""

    kind: Literal["oracle"]


class _Estimating(Configuration):
    """A policy that needs an estimate of the transfer time."""

    initial_transfer_ms: Annotated[float, Field(ge=0.0, le=1e7)] | None = None
    """The estimate before the first request was offloaded; left out: the RTT when the run begins, as if measured once."""


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


PolicyConfiguration = Annotated[EdgePolicy | CloudPolicy | OraclePolicy | NaivePolicy | CNmtPolicy, Field(discriminator="kind")]
"""What a scenario may say of a policy."""

KINDS = ("edge", "cloud", "oracle", "naive", "cnmt")
"""Names that `kind` may take; a policy that bears one of them as its name need not say its kind."""
