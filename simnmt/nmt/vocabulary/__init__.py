"""Output layers over a part of the target vocabulary: clusters of contexts (FVP) and candidate lists (SHARP-02).

Open first: `restricted_vocabulary.py`, which decoders take as `vocabulary`; `cluster_bundle.py` and `candidate_lists.py`, which
build clusters and lists from text.
"""
