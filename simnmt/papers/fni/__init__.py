"""Faster NMT inference (anonymous ACL submission): top-up batching and a fused output layer, each with its own verb.

To read it, start with `topup.py` (claims, tables and figures), then `fused_claims.py` and `fused.py`. Below: `simulation.py`
(occupancies and speeds as frames, and the facts of a device), `devices.py` (device profiles with batch costs or a fused output
layer) and `real_decoder.py` (torch, with and without the fused layer). It imports `kit` and no other paper.
"""

from __future__ import annotations
