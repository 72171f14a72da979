"""Sharp models on dull hardware (Devlin, EMNLP 2017): the sharp decoder timed on this box, beside what the paper prints.

`data/sharp.toml` has what the paper prints. Open `claims.py` (facts, predictions and claims), then `reproduction.py` (tables).
"""
