"""Faster NMT inference (anonymous ACL submission): top-up batching, and softmax and search fused; one verb for each half.

To read it, start with `published.py` (what the paper prints), then `topup.py` and `fused.py` (the two reproductions with their
tables and charts); claims are judged in `topup_claims.py` and `fused_claims.py`, case by case as `cases.py` says. Below them:
`devices.py` (device profiles with batch costs or a fused output layer), `offline.py` (all sentences at hand), `online.py`
(sentences arrive one by one) and `stages.py` (stages of the fused output layer). It imports no other paper but `kit`.
"""

from __future__ import annotations
