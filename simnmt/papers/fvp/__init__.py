"""The paper on vocabulary projection: each step multiplies the columns of the clusters that its decoder contexts fall into.

Open `published.py` first (what follows from Tables 1 to 6), then `reproduction.py` (tables, figures and the verb) and
`study.py` (the file of a study of a trained model). `printed_claims.py` and `study_claims.py` hold the claims; `measure.py`
measures a study with `decoding.py`, on the sentences of `texts.py`. Only `measure.py` and `decoding.py` import torch, and
nothing here imports another paper.
"""

from __future__ import annotations
