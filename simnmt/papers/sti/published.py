"""Figures and statements of the paper's text on streaming a model in shards, and its lost tables (STI-20 to 28)."""

from __future__ import annotations

from typing import Literal

from simnmt.streaming.plan.presets import LAYER_COMP_S as LAYER_COMP_S
from simnmt.streaming.plan.presets import LAYER_LOAD_S as LAYER_LOAD_S
from simnmt.streaming.plan.presets import OUTLIERS as OUTLIERS
from simnmt.streaming.plan.presets import PRELOAD_BYTES as PRELOAD_BYTES

REFERENCE = (
    "Liwei Guo, Wonkyo Choe, Felix Xiaozhu Lin: STI: Turbocharge NLP Inference at the Edge via Elastic Pipelining, ASPLOS "
    "2023: by its text alone, as its seven tables and eight figures are not in the source text"
)

Board = Literal["Odroid", "Jetson"]
DEADLINES_S = (0.150, 0.200, 0.400)

GAINS: dict[Board, dict[str, float]] = {
    "Odroid": {"Load&Exec": 21.05, "StdPL-32": 21.05, "StdPL-2": 17.13, "StdPL-6": 5.83},
    "Jetson": {"Load&Exec": 18.77, "StdPL-32": 18.77, "StdPL-2": 6.53, "StdPL-6": 3.15},
}
"""Points of accuracy that STI gains over each baseline, mean over benchmarks and deadlines (section 7.2); full is 32 bits."""
MEAN_GAIN = 7.1
"""Points gained over all baselines."""
DEMAND_GAIN = 14.0
"""Points gained over loading on demand."""
PRELOAD_GAIN = 0.16
"""Points gained over PreloadModel."""
FULL_GAIN, LOW_GAIN = 19.9, 8.2
"""Points gained over StdPL-full, and over StdPL-2 and StdPL-6 (section 7.3)."""
INTRO_LOSS, INTRO_GAINS = 0.1, (5.9, 54.1)
"""Points lost against holding the model, at most, and gained over pipelines (section 1)."""

MEMORY = {"PreloadModel-32": 204.0, "PreloadModel-6": 41.0}
"""Parameter memory over STI's, by the text of figure 7."""
MEAN_MEMORY = 122.0
LEAST_ORDER = 1.0
"""Least orders of magnitude less memory, of `1 to 2`."""

SHARDS = {"PreloadModel": 1.0, "Load&Exec": 7.0, "StdPL-32": 7.0, "StdPL-2": 1.3, "StdPL-6": 1.3}
"""Operations of STI's submodel over theirs (Table 6's text)."""
BUFFER_GAIN = 3.7
"""Points gained by the preload buffer, `up to` (Odroid; QNLI, QQP)."""
IMPORTANCE = (8.19, 23.1)
"""Points that raising by importance gains over raising at random: on average, and at most (Table 7's text)."""
SIZE_GAIN = (0.4e6, 4.0e6, 19.2)
"""Bytes of the preload buffer, before and after, and points."""
NARROW_GAIN = 7.7
"""Points on Odroid below 200 ms, where fewer than 10 layers fit."""
STORE_MB = 215.0
"""Size of five low versions."""

DISTIL_LAYERS = 6
STALLED = 0.72
"""Share of the pipeline's time without computation, `more than`."""
DISTIL_MB, DISTIL_LOAD_S = 170.0, 2.1
FILE_MB, FILE_LOAD_S = 240.0, 3.1
"""The same model as a whole file."""


LOST = (
    ("Table 1", "sizes of a layer’s matrices and shards", "rebuilt from the shapes (STI-01)"),
    ("Table 2", "the two boards", "their names and deadlines alone"),
    ("Table 3", "benchmarks and metrics", "SST-2, RTE, QNLI, QQP are named in the text"),
    ("Table 4", "the baselines", "their description in the text (STI-19)"),
    ("Table 5", "accuracies by board, deadline and benchmark", "mean gains over four baselines alone"),
    ("Table 6", "sizes of the submodels", "ratios of operations alone"),
    ("Table 7", "raising shards by importance or at random", "mean and largest gain, and one of buffer sizes"),
    ("Figures 1 to 6", "schemes, and each shard’s importance", "worked examples of our own (STI-11 to 17)"),
    ("Figure 7", "accuracy against memory", "redrawn from our own study"),
    ("Figure 8", "two pipelines side by side", "drawn from our own plans"),
    ("symbols in the text", "T, |S|, n, m, k, AIB, T_io, T_comp and their example values", "our own notation and examples"),
)
"""Tables and figures missing from the source text: their content by the text around them, and the substitute here (STI-26)."""

SINGLE_FIGURES = (
    (
        "accuracy",
        "7.1 points more than baselines on average; 14 more than loading on demand, 0.16 more than the model in memory",
    ),
    ("memory", "1 to 2 orders of magnitude less: 204 times less than PreloadModel-full, 41 times less than PreloadModel-6"),
    ("operations", "as many as PreloadModel, 7 times Load&Exec and StdPL-full, 1.3 times StdPL-2 and StdPL-6"),
    ("figure 8’s case", "5 layers instead of 4: 1.25 times the operations, and 9.2 points"),
    ("preload buffer", "up to 3.7 points (Odroid; QNLI, QQP); from 0.4 to 4.0 MB 19.2 points (Table 7’s text)"),
    ("importance", "5 x 3 shards raised from 2 to 6 bits: 8.19 points more than at random on average, up to 23.1"),
    (
        "deadlines",
        "7.7 points below 200 ms on Odroid, where fewer than 10 layers fit; on Jetson most below 400 ms, fewer than 7",
    ),
    ("short deadlines", "below 100 ms every way is poor"),
    ("shapes", "deep and narrow on the processor; shallow and wide on the GPU, where 12 slices take 0.7 % longer than 3"),
    ("storage", "215 MB for five low versions, beside 418 MB of the model; 0.14 to 0.17 % of the weights are outliers"),
    (
        "loading",
        "DistilBERT’s 170 MB in 2.1 s; its file of 240 MB in 3.1 of 3.6 s; a layer in 339 ms beside 95 ms of computation",
    ),
    ("energy", "more than ways of low accuracy, moderately more than PreloadModel; not measured"),
)
"""Single figures of the text (STI-21 to 25)."""

SETTING = (
    ("boards", "Odroid, a hexa-core Arm on its processor, and Jetson on its GPU; deadlines of 150, 200 and 400 ms"),
    ("models", "DynaBERT, 12 layers of 12 heads; DistilBERT’s 6 layers give the `gold` accuracy"),
    ("preload buffer", "1 MB on Odroid and 5 MB on Jetson"),
    ("tasks", "GLUE, of which SST-2, RTE, QNLI and QQP are named"),
    ("bits", "2 to 6 by a dictionary with outliers kept (GOBO), and 32"),
    ("software", "PyTorch 1.11, scikit-learn 0.23.2, some 800 lines of Python and 200 of C with OpenMP"),
)
"""STI-20."""

SLIPS = (
    "A loss of at most 0.1 point (introduction), a gain of 0.16 points (section 7.2) and a mean loss of less than 1 % (the "
    "text of figure 7) are said of the same comparison with the model held in memory.",
    "`5.9 to 54.1 points` over pipelines stands beside smallest means of 5.83 and 3.15.",
    "One model is 170 MB, nearly 200 MB and 240 MB: 170 are its six layers alone, 169.9 by the shapes.",
    "Shards are raised to 6 bits in the overview and to 32 in the details; 32 is taken here.",
    "Importance compares 2 with 32 bits, though shards are raised to 3, 4, 5 and 6 as well.",
    "Load&Exec takes the submodel closest to the deadline, on either side; all other baselines must stay below.",
    "MB means 10^6 bytes where five versions are 215 MB, and 2^20 where the model is 418.",
    "A buffer of 1 MB is said to hold a first layer. It holds six of twelve slices at 2 bits, 0.89 MB, but neither "
    "twelve at 2 bits, 1.77 MB, nor three at 6 bits, 1.33 MB. 5 MB hold twelve slices at up to 5 bits, 4.42 MB, but not at 6, "
    "5.31 MB.",
    "41 times less memory than at 6 bits implies 68 MB where the shapes give 63.7, which is 38.2 times.",
    "The budgets of section 5.4 say that a plan does not stall only where the preloaded shards come first in layer order: one "
    "whose buffer holds a later layer can pass and still stall (STI-12).",
)
"""STI-28, in our words; nothing here changes a verdict."""
