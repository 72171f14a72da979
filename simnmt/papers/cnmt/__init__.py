"""The C-NMT paper (Chen et al., ISCAS 2022): its Table I, its claims, and the verdicts on our device profiles.

Open `published.py` first (what the paper prints), then `claims.py` (what must hold) and `reproduction.py` (Table I on inferred
and on measured profiles). `fit.py` infers device profiles from the published ratios, `network_levels.py` finds networks on
which the measured devices have something to decide.
"""

from __future__ import annotations
