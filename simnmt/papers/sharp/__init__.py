"""Sharp models on dull hardware (Devlin, EMNLP 2017): a decoder made faster step by step, and layer stacks that suit it.

Open `published.py` first (Tables 1 and 2 and their slips), then `claims.py` and `reproduction.py`. The measurements come from
`simnmt.calibrate`.
"""

from __future__ import annotations
