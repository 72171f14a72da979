"""The paper on vocabulary projection: each step multiplies the columns of the clusters that its decoder contexts fall into.

Open `published.py` first (Tables 1 to 6 and their slips), then `paper_claims.py` and `reproduction.py`. `study.py` is the file
that a study of a trained model writes, and `study_run.py` measures it; `bench_claims.py` reads files of `simnmt vocab bench`.
"""

from __future__ import annotations
