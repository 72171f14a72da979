"""The C-NMT paper (Chen et al., ISCAS 2022): its Table I, its claims, and what profiles of ours say of them.

Read `published` first (what the paper prints), then `table_one` (ours beside it), `claims` (what must hold), and
`reproduction` (all of it on inferred and on measured profiles). `fit` says how the inferred profiles came out of the published
ratios, `network_search` how networks are found on which measured devices have something to decide.
"""
