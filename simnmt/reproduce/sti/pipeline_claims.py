"""What a real pipeline says: faster than load-then-run, hardly stalled where planned so, as simulated (STI-16, STI-21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simnmt.reproduce.sti.studies import Way
from simnmt.reproduce.verdicts import UNKNOWN, Records, record_of

NEEDS = "needs a file of `python -m benchmarks.sti_pipeline --out FILE`: give --pipeline"
FASTER: Way = ("STI-16 (a)", "A pipeline of 6-bit shards is at least 4 times as fast as loading in 32 bits, then running", "")
STALLS: Way = ("STI-16 (b)", "Plans that are predicted not to stall do so for at most 15 % of their time", "")
SIMULATED: Way = ("STI-16 (c)", "Simulated latency is within 10 % of what is measured, for every plan", "")


def pipeline_claims(measured: Mapping[str, Any] | None) -> Records:
    """Three claims by one measurement; without one, what they need."""
    return [record_of(*way, "", UNKNOWN, NEEDS, basis="needs --pipeline") for way in (FASTER, STALLS, SIMULATED)]
