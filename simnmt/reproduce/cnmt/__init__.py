"""The C-NMT paper (Chen et al., ISCAS 2022): its Table I, its claims, and the profiles inferred from it.

Read `published` first (what the paper prints), then `table_one` (ours beside it), `claims` (what must hold),
and `fit` (how the shipped device profiles were inferred from the published ratios).
"""
