"""What an attentional model is made of, and the models of the paper on sharp models (SHARP-04, 12, 15, 16)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simnmt.configuration import Configuration
from simnmt.nmt.special_tokens import Size, SpecialTokens

_Layers = Annotated[int, Field(ge=1, le=128)]


class StackBlock(Configuration):
    """Layers alike, on top of what is below them (SHARP-12)."""

    kind: Literal["fc_relu", "fc_tanh", "gru", "lstm"]
    """Fully connected, or recurrent over the target. From the third fc_relu layer of a block on, every other one adds the
    output of the last but one layer before it takes the positive part."""
    width: Size
    """Of each layer's output."""
    layers: _Layers = 1
    """How many."""


class AttentionalArchitecture(SpecialTokens):
    """A bidirectional encoder, an attentional cell at the bottom of the decoder (SHARP-04), and layers on top of it (SHARP-12).

    What attention finds is fed into the cell, so that training goes over the target's positions one by one. The decoder starts
    from states of zeros: the paper says nothing of it.
    """

    kind: Literal["attentional"]
    cell: Literal["gru", "lstm"] = "gru"
    """The bottom cell of the decoder."""
    hidden: Size
    """Width of its state."""
    embedding: Size
    """Width of a token's vector."""
    attention: Literal["dot_of_tanh", "additive"] = "dot_of_tanh"
    """The score as printed, tanh(W h + V x) . tanh(U s), or v . tanh(W h + V x + U s) of the model that the paper cites."""
    attention_width: Size | None = None
    """Of what is compared in it; as `hidden` if not given."""
    stack: Annotated[tuple[StackBlock, ...], Field(strict=False)] = ()
    """From bottom to top; the vocabulary is multiplied with the last one's output."""
    source_cell: Literal["gru", "lstm"] = "gru"
    """Cells of the encoder."""
    source_layers: _Layers
    """Of the encoder, all in both directions."""
    source_hidden: Size
    """Width of its state in each direction; both, joined, are what attention looks at."""
    src_vocab: Size
    """Source tokens known."""
    tgt_vocab: Size
    """Target tokens known."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> AttentionalArchitecture:
        self._fit(min(self.src_vocab, self.tgt_vocab))
        if any(below.kind == above.kind == "fc_relu" for below, above in pairwise(self.stack)):
            raise ValueError("stack: neighbouring fc_relu layers are one block, of one width")
        return self

    @property
    def max_positions(self) -> None:
        """A recurrent model takes any length."""
        return None

    @property
    def compared(self) -> int:
        """Width of what attention compares."""
        return self.attention_width or self.hidden

    @property
    def layers(self) -> tuple[StackBlock, ...]:
        """The stack, a block a layer."""
        return tuple(block.model_copy(update={"layers": 1}) for block in self.stack for _ in range(block.layers))

    @property
    def output(self) -> int:
        """Width of what the vocabulary is multiplied with."""
        return self.stack[-1].width if self.stack else self.hidden


def _of_the_paper(*stack: StackBlock, **other: object) -> AttentionalArchitecture:
    sizes: dict[str, object] = {
        "kind": "attentional",
        "hidden": 1024,
        "embedding": 512,
        "stack": stack,
        "source_layers": 3,
        "source_hidden": 512,
        "src_vocab": 80_000,
        "tgt_vocab": 80_000,
    }
    return AttentionalArchitecture.model_validate(sizes | other)


def _relu(layers: int) -> StackBlock:
    return StackBlock(kind="fc_relu", width=768, layers=layers)


_TANH, _GRU = StackBlock(kind="fc_tanh", width=1024), StackBlock(kind="gru", width=1024)

SHARP_MODELS: dict[str, AttentionalArchitecture] = {
    "sharp": AttentionalArchitecture(
        kind="attentional",
        hidden=256,
        embedding=256,
        stack=(StackBlock(kind="fc_relu", width=256, layers=3), StackBlock(kind="fc_tanh", width=256)),
        source_layers=1,
        source_hidden=128,
        src_vocab=32_000,
        tgt_vocab=32_000,
    ),
    "sharp-s1": _of_the_paper(),
    "sharp-s2": _of_the_paper(_GRU),
    "sharp-s3": _of_the_paper(_relu(3), _TANH),
    "sharp-s4": _of_the_paper(_relu(7), _TANH),
    "sharp-s5": _of_the_paper(_relu(7), _GRU),
    "sharp-s6": _of_the_paper(_relu(15), _TANH),
    "sharp-s7": _of_the_paper(StackBlock(kind="lstm", width=1024, layers=7), cell="lstm", source_cell="lstm", source_layers=8),
}
"""By name: `sharp`, shaped like S3 and small enough to be trained on a processor, and S1 to S7 of Table 2 (SHARP-15, 16).

The paper leaves open the embedding, 512 here, the width of what attention compares, as the target's here, and of S7 the width
of the encoder, here 512 in each direction as in the others.
"""
