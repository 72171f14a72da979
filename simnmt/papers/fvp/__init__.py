"""The paper on vocabulary projection: each step multiplies the columns of the clusters that its decoder contexts fall into.

Open `published.py` first (Tables 1 to 6 and their slips), then `reproduction.py` (claims, tables and charts of one report) and
`study.py` (the file of a study of a trained model). `study_claims.py` judges a study; `study_run.py` measures one with
`study_texts.py`, `study_clusters.py` and `study_decoding.py`. Only these four may import torch, and nothing here imports
another paper.
"""

from __future__ import annotations
