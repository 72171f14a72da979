"""The source papers: their printed figures, our measurements and simulations, and a verdict on every claim.

A paper is a data file with what it prints (`data/<paper>.toml`), a folder with its facts, its claims and its `reproduce`, and
a line in `PAPERS`, which makes the verb `simnmt reproduce <paper>`. Open `sharp/` first, then `kit/claims.py` (claims and the
judge), `kit/paper.py` (the data) and `kit/rendering.py` (document, text and page). The papers:
`cnmt` (C-NMT, ISCAS 2022), `fni` (top-up batching and the fused output layer), `sharp` (sharp models on dull hardware, EMNLP
2017), `sti` (elastic pipelines, ASPLOS 2023), `fvp` (projection onto clusters of the vocabulary, 2022). Only `cli` may import
this room: the rooms below know no paper.
"""

from __future__ import annotations

from typing import NamedTuple


class Reproduction(NamedTuple):
    """Where the reproduction of a paper is, and the help of its verb."""

    module: str
    """Has `reproduce(*, ..., progress) -> Report`, whose annotated parameters are the options of the verb."""
    help: str


PAPERS = {
    "cnmt": Reproduction(
        "simnmt.papers.cnmt.reproduction",
        "C-NMT (ISCAS 2022): Table I, its ratios, figures and claims: published, on inferred and on measured profiles.\n\n"
        "Example: simnmt reproduce cnmt --requests 2000",
    ),
    "topup": Reproduction(
        "simnmt.papers.fni.topup",
        "Top-up batching (anonymous ACL submission): occupancies, speeds and claims.\n\n"
        "Example: simnmt reproduce topup --profile @cpu1-gru",
    ),
    "fused": Reproduction(
        "simnmt.papers.fni.fused",
        "Fused softmax and search (ACL submission): Tables 2 and 3, shares and speeds, on profiles and a real decoder.\n\n"
        "Example: simnmt reproduce fused --requests 5000",
    ),
    "sharp": Reproduction(
        "simnmt.papers.sharp.reproduction",
        "Sharp models on dull hardware (EMNLP 2017): Tables 1 and 2 and figure 1, measured live on one thread; minutes.\n\n"
        "Example: simnmt reproduce sharp --quick",
    ),
    "sti": Reproduction(
        "simnmt.papers.sti.reproduction",
        "Elastic pipelining (ASPLOS 2023): its claims, a trained classifier's study beside them, and pipelines drawn.\n\n"
        "Example: simnmt reproduce sti --out sti-page",
    ),
    "vocab": Reproduction(
        "simnmt.papers.fvp.reproduction",
        "Vocabulary projection by clusters (2022): Tables 1 to 6, figures 2 to 4, and a trained model's study beside them.\n\n"
        "Example: simnmt reproduce vocab --out vocab-page",
    ),
}
"""By verb; this module imports none of them, so that the command line starts at once."""
