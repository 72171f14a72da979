"""Table I of the C-NMT paper, the ratios that it implies, and our replacements for its data sets (CNMT-13, 15, 16)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

REFERENCE = (
    "Y. Chen, R. Chiaro, E. Macii, M. Poncino, D. Jahier Pagliari: C-NMT: A Collaborative Inference "
    "Framework for Neural Machine Translation. IEEE ISCAS 2022, pp. 1512-1516, "
    "doi 10.1109/ISCAS48785.2022.9937603, Table I"
)

WORKLOADS = ("de-en", "fr-en", "en-zh")
NETWORKS = ("cp1", "cp2")
POLICIES = ("naive", "cnmt")
"""The policies with a row in the table."""
BASELINES = ("edge", "cloud", "oracle")
"""The policies of the table's columns, in its order; printed GW, Server, Oracle."""

LABELS = {"edge": "GW", "cloud": "Server", "oracle": "Oracle", "naive": "Naive", "cnmt": "C-NMT"}
"""The paper's names of simnmt's policies."""

TABLE_ONE: dict[tuple[str, str], tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    ("de-en", "naive"): ((+11.74, -4.78, +29.17), (-16.16, -5.28, +13.25)),
    ("de-en", "cnmt"): ((-13.55, -26.15, +0.11), (-24.34, -17.65, +0.15)),
    ("fr-en", "naive"): ((-5.74, -40.80, +8.03), (-7.15, -32.13, +15.46)),
    ("fr-en", "cnmt"): ((-12.29, -44.32, +1.24), (-18.00, -41.06, +1.13)),
    ("en-zh", "naive"): ((-17.11, -8.08, +15.49), (-36.31, -10.41, +8.51)),
    ("en-zh", "cnmt"): ((-21.17, -12.46, +9.83), (-35.66, -10.58, +8.77)),
}
"""Change of total time against a baseline, percent, by (workload, policy), network and baseline."""


def variation_percent(workload: str, network: str, policy: str, baseline: str) -> float:
    """Return one of the 36 printed cells. Raises `KeyError` or `ValueError` for a name that the table lacks."""
    return TABLE_ONE[workload, policy][NETWORKS.index(network)][BASELINES.index(baseline)]


def table_cells() -> Iterator[tuple[str, str, str, str]]:
    """Yield workload, network, policy and baseline of the 36 cells, in the table's order."""
    for workload, policy in TABLE_ONE:
        for network, baseline in product(NETWORKS, BASELINES):
            yield workload, network, policy, baseline


@dataclass(frozen=True, slots=True)
class ImpliedRatios:
    """Total times over the gateway's, as one column pair of Table I implies them.

    Server and Oracle follow twice, from the Naive row and from the C-NMT row. In eleven of twelve cases the two differ by more
    than the rounding: the paper's baselines were not one fixed run per cell.
    """

    workload: str
    network: str
    server: tuple[float, float]
    """From the Naive row, from the C-NMT row."""
    oracle: tuple[float, float]
    naive: float
    cnmt: float

    @property
    def pairs(self) -> dict[str, tuple[float, float]]:
        """By policy, the total time over the gateway's that the Naive row and the C-NMT row imply."""
        return {"cloud": self.server, "oracle": self.oracle, "naive": (self.naive, self.naive), "cnmt": (self.cnmt, self.cnmt)}

    @property
    def targets(self) -> dict[str, float]:
        """By policy, the total time over the gateway's: the mean of both derivations."""
        return {policy: sum(pair) / 2 for policy, pair in self.pairs.items()}


def implied_ratios(workload: str, network: str) -> ImpliedRatios:
    """Derive one row of CNMT-16 from the printed percentages."""
    naive, cnmt = (
        [1 + variation_percent(workload, network, policy, baseline) / 100 for baseline in BASELINES] for policy in POLICIES
    )
    return ImpliedRatios(
        workload,
        network,
        (naive[0] / naive[1], cnmt[0] / cnmt[1]),
        (naive[0] / naive[2], cnmt[0] / cnmt[2]),
        naive[0],
        cnmt[0],
    )


def all_implied_ratios() -> Iterator[ImpliedRatios]:
    """Yield the six rows of CNMT-16, in the table's order."""
    return (implied_ratios(workload, network) for workload in WORKLOADS for network in NETWORKS)


SETTING = (
    ("data", "IWSLT'14 German-English, OPUS-100 French-English and English-Chinese; 100,000 requests each"),
    ("models", "2-layer BiLSTM of 500, 1-layer GRU of 256, MarianMT Transformer"),
    ("devices", "gateway: NVIDIA Jetson TX2; server: Titan XP with two Xeon E5-2630; PyTorch"),
    ("networks", "two RIPE Atlas traces of round-trip times, the slower CP1 and the faster CP2; 100 Mbit/s each way"),
)
"""CNMT-04, 13, 14."""

SLIPS = (
    "The transfer time is said once to depend on N and M and later to be roughly independent of them; "
    "independent is meant (the payload of two bytes a word adds microseconds to a round trip of "
    "milliseconds).",
    "The mean squared errors are printed in ms; they are in ms squared.",
    "The 21 % by which C-NMT beats Naive on DE-EN are percentage points of the Server column (26.15 - "
    "4.78 = 21.37). In the GW column the gap is 25.29 points, and as a ratio of total times C-NMT takes"
    " 22.4 to 22.6 % less than Naive.",
    "A translation Transformer's decoder attends to every output of the encoder, not to the last or "
    "first one as a single context vector.",
    "Offloading under CP1 is called mostly unprofitable, yet for EN-ZH the server alone already beats "
    "the gateway alone in total (0.90): few long sentences carry much of the total time.",
    'The time span "7:30-12:30 a.m." is ambiguous: 12:30 a.m. lies before 7:30 a.m.; 12:30 p.m. may be meant.',
    "The two rows of a data set imply different Server and Oracle totals in eleven of twelve cases, by "
    "up to 3.7 %, more than the rounding explains: the baselines were not one fixed run per cell. In "
    "EN-ZH CP2 the winner itself depends on the column.",
)
"""What does not fit together in the paper, in our words; none of it changes a verdict."""
