"""Output layers over a part of the target vocabulary: clusters of contexts (FVP) and candidate lists (SHARP-02).

Open first: `restricted_vocabulary.py`, which decoders take as `vocabulary`; `builders.py`, which builds clusters and lists from
text. `memory_account.py` needs no torch.
"""

from __future__ import annotations
