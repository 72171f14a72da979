"""The C-NMT paper (Chen et al., ISCAS 2022): its Table I, its claims, and the verdicts on our device profiles.

Open `published.py` first (the printed figures), then `claims.py` (the claims and their judges) and `reproduction.py` (Table I
on inferred and on measured profiles). `fit.py` infers device profiles from the published ratios.
"""

from __future__ import annotations
