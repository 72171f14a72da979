"""The paper on projecting onto clusters of contexts: a part of the vocabulary a step, chosen by where the decoder stands.

Read `published` and `published_quality` first (Tables 1 to 6 and their slips), then `derived` and `presets` (what follows from
them), `paper_claims`, `cluster_claims`, `decoding_claims`, `reproduction` (all of it). What is measured comes from
`simnmt.calibrate`'s study of a trained model, and from files of `simnmt vocab bench`.
"""
