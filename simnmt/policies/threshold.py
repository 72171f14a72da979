"""The source length at which C-NMT's rule changes its mind, in closed form (CNMT-09)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

from simnmt.workload.length_regression import LEAST_TGT_LEN


class Plane(Protocol):
    """The coefficients of an execution plane."""

    @property
    def s_per_src_token(self) -> float: ...
    @property
    def s_per_tgt_token(self) -> float: ...
    @property
    def s_fixed(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Threshold:
    """For which source lengths the rule keeps a request at the gateway."""

    kept: Literal["up to", "from", "between", "outside", "always", "never"]
    """`up to` or `from` `src_len`; `between` `src_len` and `upper`, or `outside` of them; or whatever the length."""
    src_len: float
    """Tokens; NaN where the choice does not depend on the length."""
    upper: float = math.nan
    """Tokens; NaN where there is one border at most."""


def threshold(gateway: Plane, cloud: Plane, len_slope: float, len_offset: float, transfer_s: float) -> Threshold:
    """Return where gateway and cloud take equally long under the length regression; a tie stays at the gateway (CNMT-09).

    The predicted length is a line that is never below one token, so the difference of both devices' times is a line with one
    bend at most, and the rule changes its mind twice at most. Lengths below 1 are left out: no request has them.
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
