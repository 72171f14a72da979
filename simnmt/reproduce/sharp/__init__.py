"""The paper on sharp models on dull hardware (EMNLP 2017): a decoder made faster step by step, and stacks that suit it.

Read `published` first (Tables 1 and 2 and their slips), then `predicted` (what counting says), `claims`, `agreement_claims`,
`reproduction` (all of it). What is measured comes from `simnmt.calibrate.sharp_speeds` and `sharp_agreement`.
"""
