"""Cascade: the first device translates, and the last one translates again what it is expected to translate better.

Papers on cascades count calls; here a request waits for both devices, and the second decision knows the delay of that moment.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from simnmt.policies.gains import GainPolicySettings


class CascadePolicy(GainPolicySettings):
    """Translate at the first device, then decide whether the last one translates again.

    Example:
        >>> CascadePolicy(kind="cascade", signal="logprob", budget=0.2).decides_again
        True
    """

    kind: Literal["cascade"]
    decides_again: ClassVar[bool] = True
