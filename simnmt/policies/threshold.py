"""The source length at which C-NMT's rule changes its mind, in closed form (CNMT-09)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class Plane(Protocol):
    """The coefficients of an execution plane."""

    @property
    def s_per_src_token(self) -> float: ...  # noqa: D102
    @property
    def s_per_tgt_token(self) -> float: ...  # noqa: D102
    @property
    def s_fixed(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Threshold:
    """For which source lengths the rule keeps a request at the gateway."""

    kept: Literal["up to", "from", "always", "never"]
    """`up to` or `from` `src_len`, or whatever the length."""
    src_len: float
    """Tokens; NaN where the choice does not depend on the length."""


def threshold(gateway: Plane, cloud: Plane, len_slope: float, len_offset: float, transfer_s: float) -> Threshold:
    """Where gateway and cloud take equally long under the length regression; a tie stays at the gateway."""
    per_tgt_token = gateway.s_per_tgt_token - cloud.s_per_tgt_token
    gain_per_token = (gateway.s_per_src_token - cloud.s_per_src_token) + per_tgt_token * len_slope
    cost_of_sending = transfer_s + cloud.s_fixed - gateway.s_fixed - per_tgt_token * len_offset
    if gain_per_token == 0.0:
        return Threshold("always" if cost_of_sending >= 0.0 else "never", float("nan"))
    return Threshold("up to" if gain_per_token > 0.0 else "from", cost_of_sending / gain_per_token)
