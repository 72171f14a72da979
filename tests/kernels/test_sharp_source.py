"""The source side in C at every level against numpy in float64, with each technique on, and its bounds (SHARP-05, 06, 16)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.kernels.errors import KernelError
from simnmt.kernels.sharp.decoder import SourceEncoder
from simnmt.kernels.sharp.model import Float32, SourceWeights
from simnmt.kernels.sharp.reference import ReferenceSource, plain
from simnmt.profile.decoder_settings import DecoderSettings
from tests.kernels.each_level import each_level, forbid_compiled_kernels
from tests.kernels.sharp_models import source_weights

SENTENCE = [5, 7, 9, 3, 49, 4, 49, 8, 3]
NOISE = {
    "int16": ({"gemm": "int16"}, 5e-4),
    "table": ({"activations": "table"}, 0.01),
    "polynomial": ({"activations": "polynomial"}, 1e-5),
    "all": ({"gemm": "int16", "embeddings": "frequent", "frequent_words": 8, "activations": "polynomial"}, 5e-4),
}


def encoder(weights: SourceWeights, level: str | None = None, **options: object) -> SourceEncoder:
    return SourceEncoder(weights, DecoderSettings(**options), most_src_len=12, level=level)


def oracle(weights: SourceWeights, words: list[int]) -> Float32:
    return ReferenceSource(weights, plain(np.float64)).encode(np.array(words))


@each_level
@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 3])
def test_states_equal_those_of_float64(level: str, kind: str, layers: int) -> None:
    weights = source_weights(layers, kind=kind, layers=layers)  # type: ignore[arg-type]
    for words in (SENTENCE, [3], [0, 3]):
        states = encoder(weights, level).encode(words)
        assert states.shape == (len(words), 38) and states.dtype == np.float32
        np.testing.assert_allclose(states, oracle(weights, words), atol=2e-6)


@each_level
@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("kept", [{"embeddings": "precomputed"}, {"embeddings": "frequent", "frequent_words": 8}], ids=str)
def test_sharp_06_kept_products_of_source_embeddings_change_no_bit(level: str, kind: str, kept: dict[str, object]) -> None:
    """In float32 and in 16 bits: words with and without kept products, some of them twice in the sentence."""
    weights = source_weights(4, kind=kind)  # type: ignore[arg-type]
    for gemm in ("float32", "int16"):
        assert np.array_equal(encoder(weights, level, gemm=gemm, **kept).encode(SENTENCE), encoder(weights, level, gemm=gemm).encode(SENTENCE))  # fmt: skip  # noqa: E501


@each_level
@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("how", NOISE)
def test_sharp_10_noise_exists_and_stays_within_its_bound(level: str, kind: str, how: str) -> None:
    weights, (options, bound) = source_weights(5, kind=kind, layers=3), NOISE[how]  # type: ignore[arg-type]
    off = np.abs(encoder(weights, level, **options).encode(SENTENCE) - oracle(weights, SENTENCE)).max()
    assert off <= bound
    if how in ("int16", "table", "all"):
        assert off > 2e-6, "the technique runs"


@pytest.mark.parametrize("options", [{"gemm": "int16"}, {"activations": "table"}, {"activations": "polynomial"}], ids=str)
def test_the_source_side_in_numpy_uses_no_compiled_kernel(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_compiled_kernels(monkeypatch)
    assert encoder(source_weights(1), "none", **options).encode(SENTENCE).shape == (9, 38)


@each_level
def test_an_encoder_keeps_nothing_of_the_previous_sentence(level: str) -> None:
    weights = source_weights(6, kind="lstm", layers=3)
    used = encoder(weights, level, gemm="int16", embeddings="frequent", frequent_words=20)
    first = used.encode(SENTENCE)
    used.encode([3])
    used.encode([48] * 12)
    assert np.array_equal(used.encode(SENTENCE), first)


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "shape"), ([3] * 13, "shape"), ([50], "outside the vocabulary of 50"), ([-1], "outside"), ([[3]], "shape")],
)
def test_sentences_that_do_not_fit_are_refused(words: object, message: str) -> None:
    for level in (None, "none"):
        with pytest.raises(KernelError, match=message):
            encoder(source_weights(), level).encode(words)  # type: ignore[arg-type]


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    weights = source_weights()
    first = weights.layers[0]
    short = replace(first.backward, reset_bias=None)
    with pytest.raises(KernelError, match=r"source\.layers\[0\]\.backward\.reset_bias"):
        replace(weights, layers=(replace(first, backward=short), *weights.layers[1:]))
    with pytest.raises(KernelError, match=r"source\.layers\[1\]\.forward\.input has the shape"):
        replace(weights, layers=(first, first))
    with pytest.raises(KernelError, match="at least one layer"):
        replace(weights, layers=())
    with pytest.raises(KernelError, match="most_src_len is 0"):
        SourceEncoder(weights, DecoderSettings(), most_src_len=0)
