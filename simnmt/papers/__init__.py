"""The source papers: what each one prints, what we measure and simulate of it, and a verdict on each of its claims.

Open `kit/claim.py` first (what a claim and a verdict are) and `kit/table.py` (a table declared once), which `sharp` uses and
the others will; then `published.py` of a paper (what it prints) and its
`reproduction.py` (what is measured, the tables, the text). The rooms: `cnmt` (C-NMT, ISCAS 2022), `fni` (faster NMT inference:
top-up batching and the fused output layer), `sharp` (sharp models on dull hardware, EMNLP 2017), `sti` (elastic pipelines,
ASPLOS 2023), `fvp` (projection onto clusters of the vocabulary, 2022). Only `api` and `cli` may import this room.
"""

from __future__ import annotations
