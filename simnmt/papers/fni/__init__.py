"""Faster NMT inference (anonymous ACL submission): top-up batching and a fused output layer, each with its own verb.

To read it, start with `topup.py` and `fused.py` (the two reproductions with their tables and figures); `topup_claims.py` and
`fused_claims.py` hold the claims, judged case by case by the rules of `cases.py`. Below: `simulation.py` (frames of occupancies
and speeds), `devices.py` (device profiles with batch costs or a fused output layer) and `published.py` (what follows from the
printed figures). It imports `kit` and no other paper.
"""

from __future__ import annotations
