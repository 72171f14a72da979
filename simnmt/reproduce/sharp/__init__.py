"""The paper on sharp models on dull hardware (EMNLP 2017): a decoder made faster step by step, and stacks that suit it.

Read `published` first (Tables 1 and 2 and their slips), then `settings` (the ladder, as settings of our decoder), `predicted`
(what counting says), `claims`, `reproduction` (all of it). What is measured comes from `simnmt.calibrate.sharp_speeds`.
"""
