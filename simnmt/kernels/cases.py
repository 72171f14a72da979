"""The registry of kernels: a new kernel is its cases and one entry here."""

from __future__ import annotations

from functools import partial

from simnmt.kernels.cases_activation import LIBRARY as C_LIBRARY
from simnmt.kernels.cases_activation import TORCH, activation_cases
from simnmt.kernels.cases_gathered import DENSE, OWN, gathered_cases
from simnmt.kernels.cases_output import COPY, IN_PLACE, argmax_cases, best_cases
from simnmt.kernels.cases_product import LIBRARY, LINEAR, float32_cases, int16_cases
from simnmt.kernels.cases_sharp import BASELINE, BEFORE, ladder_cases
from simnmt.kernels.cases_unpack import FEWEST_BITS, unpack_cases
from simnmt.kernels.cases_unpack import TORCH as TORCH_UNPACKED
from simnmt.kernels.contract import Kernel
from simnmt.kernels.product_ways import PACKED

KERNELS = (
    Kernel(
        name="fused_best",
        meaning="bias, softmax and the best n columns of each row in one pass",
        source="FNI-03, FNI-05",
        reference="kernels.reference_output.reference_best",
        bound="1e-5 of a log-probability; the same columns, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements (FNI-02)",
        baselines=(IN_PLACE, COPY),
        cases=best_cases,
    ),
    Kernel(
        name="fused_argmax",
        meaning="bias and the best column of each row, without its probability",
        source="FNI-06",
        reference="kernels.reference_output.reference_best",
        bound="none: the same column, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements",
        baselines=(IN_PLACE, "torch add and argmax"),
        cases=argmax_cases,
    ),
    Kernel(
        name="int16_product",
        meaning="a few rows times packed weights in 16-bit fixed point",
        source="SHARP-05, SHARP-18",
        reference="numpy in float64",
        bound="kernels.scales.Scales.error_bound, by weights and inputs",
        cost="reads 2 bytes a weight; rows x weights multiply-adds",
        baselines=(LIBRARY, PACKED),
        cases=int16_cases,
    ),
    Kernel(
        name="float32_product",
        meaning="the same in float32, packed alike: what 16 bits are held against",
        source="SHARP-05",
        reference="numpy in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight; rows x weights multiply-adds",
        baselines=(LIBRARY, LINEAR),
        cases=float32_cases,
    ),
    Kernel(
        name="gathered_product",
        meaning="nearest centroids, union, product with the active columns alone, search",
        source="FVP-05 to FVP-07, XP-02",
        reference="torch in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight of the active columns and of the centroids (FVP-09)",
        baselines=(DENSE, OWN),
        cases=gathered_cases,
    ),
    *(
        Kernel(
            name=function,
            meaning=f"{function} of many values by table or polynomial",
            source="SHARP-08",
            reference=f"{function} in float64",
            bound="kernels.activations.ERROR_BOUNDS, absolute",
            cost="reads and writes 4 bytes a value",
            baselines=(C_LIBRARY, TORCH),
            cases=partial(activation_cases, function),
        )
        for function in ("tanh", "sigmoid")
    ),
    Kernel(
        name="sharp_decoder",
        meaning="a sentence's whole beam search, technique upon technique",
        source="SHARP-01, SHARP-11",
        reference="kernels.sharp.reference, in numpy and float64",
        bound="0.05 of a word's log-probability along a given translation; identities find the same words as the rung before",
        cost="every matrix once a step, beam x matrix multiply-adds (SHARP-13)",
        baselines=(BASELINE, BEFORE),
        cases=ladder_cases,
    ),
    Kernel(
        name="unpack",
        meaning="a shard's codes of 2 to 6 bits to float32 weights in their places, outliers laid over them",
        source="STI-06",
        reference="numpy, bit by bit",
        bound="none: the same weights",
        cost="reads bits / 8 bytes and writes 4 bytes a weight",
        baselines=(TORCH_UNPACKED, FEWEST_BITS),
        cases=unpack_cases,
    ),
    Kernel(
        name="triton_best",
        meaning="fused_best and fused_argmax on a GPU, in float32, float16 and bfloat16",
        source="FNI-03 to FNI-06",
        reference="torch in float64",
        bound="1e-6 of a row's log-sum, relative; the same columns",
        cost="reads V products a row and V biases",
        baselines=("torch's own sequence, in one graph", "copy of as many bytes"),
        cases=lambda threads: iter(()),
        device="cuda",
    ),
)
