"""The C-NMT paper (Chen et al., ISCAS 2022): Table I beside ours, on inferred and on measured profiles.

`data/cnmt.toml` has what the paper prints. Open `table_one.py` (Table I and what follows from it), `claims.py`, `replay.py`
(the runs) and `reproduction.py` (figures, tables and page).
"""
