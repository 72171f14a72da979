"""The source papers: their printed figures, our measurements and simulations, and a verdict on every claim.

Open `kit/report.py` first (the parts of a reproduction), then `kit/table.py` and `kit/claim.py`; then a paper's `published.py`
(its printed figures) and its `reproduction.py` (measurements, tables, claims). The rooms: `cnmt` (C-NMT, ISCAS 2022), `fni`
(faster NMT inference: top-up batching and the fused output layer), `sharp` (sharp models on dull hardware, EMNLP 2017), `sti`
(elastic pipelines, ASPLOS 2023), `fvp` (projection onto clusters of the vocabulary, 2022). Only `cli` may import this
room: the rooms below know no paper.
"""
