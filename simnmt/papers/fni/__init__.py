"""Faster NMT inference (anonymous ACL submission): top-up batching (`topup_*`), and softmax and search fused (`fused_*`).

Open `topup_published.py` and `fused_published.py` first (what the paper prints), then `devices.py` (which device profiles can
say anything about either half), `offline.py` (all sentences at hand), `online.py` (sentences arrive one by one),
`fused_stages.py`, and `topup_reproduction.py` and `fused_reproduction.py` (all of it).
"""

from __future__ import annotations
