"""Faster NMT inference (anonymous ACL submission): top-up batching and a fused output layer, each with its own verb.

To read it, start with `published.py` (the printed figures), then `topup.py` and `fused.py` (the two reproductions with their
tables and charts); `topup_claims.py` and `fused_claims.py` judge the claims, case by case by the rules of `cases.py`. Below:
`devices.py` (device profiles with batch costs or a fused output layer), `offline.py` (all sentences at hand), `online.py`
(sentences arrive one by one) and `stages.py` (stages of the fused output layer). It imports `kit` and no other paper.
"""

from __future__ import annotations
