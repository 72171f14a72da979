"""Architectures of models, read from a name or from a YAML or JSON file (CNMT-13, SHARP-04, 12, 15, 16).

An architecture holds sizes and special tokens and no weights; nothing here needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from typing_extensions import Self

from simnmt.base.configuration import Configuration, describe_validation_error
from simnmt.base.errors import describe_error
from simnmt.base.files import read_bounded
from simnmt.base.suggestions import did_you_mean
from simnmt.nmt.errors import NmtError

Size = Annotated[int, Field(ge=1, le=1_000_000)]
_Token = Annotated[int, Field(ge=0)]
_Layers = Annotated[int, Field(ge=1, le=128)]


class _Model(Configuration):
    """What every model has."""

    pad_token: _Token = 0
    unk_token: _Token = 1
    start_token: _Token = 2
    eos_token: _Token = 3

    @property
    def multilingual(self) -> bool:
        return False

    def _fit(self, vocab: int) -> None:
        for name in _Model.model_fields:
            if (token := getattr(self, name)) >= vocab:
                raise ValueError(f"{name}: {token} is no token of a vocabulary of {vocab}")


class _Recurrent(_Model):
    """What recurrent models have; they take any length."""

    hidden: Size
    """Width of a decoder state; even for a bilstm."""
    embedding: Size
    src_vocab: Size
    tgt_vocab: Size

    @property
    def max_positions(self) -> None:
        return None


class RecurrentArchitecture(_Recurrent):
    """Encoder and decoder of LSTM or GRU cells, with Luong's attention between them.

    The encoder of a `bilstm` reads in both directions with half of `hidden` each, so that its states, joined, are as
    wide as the decoder's and start it without a projection; the encoder of a `gru` reads forwards only. The attentional
    vector is not fed back into the next step, so that training runs over all positions at once.
    """

    kind: Literal["bilstm", "gru"]
    layers: Annotated[int, Field(ge=1, le=32)]

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.kind == "bilstm" and self.hidden % 2:
            raise ValueError(f"hidden: {self.hidden} cannot be halved between two directions")
        self._fit(min(self.src_vocab, self.tgt_vocab))
        return self


class StackBlock(Configuration):
    """A block of equal layers in the stack of a decoder (SHARP-12)."""

    kind: Literal["fc_relu", "fc_tanh", "gru", "lstm"]
    """Fully connected, or recurrent over the target. The fc_relu layers 3, 5, ... of a block add the output of the last but one
    layer before they take the positive part."""
    width: Size
    layers: _Layers = 1


class AttentionalArchitecture(_Recurrent):
    """A bidirectional encoder, an attentional cell at the bottom of the decoder (SHARP-04), and layers on top of it (SHARP-12).

    The attention's context is fed into the cell, so that training goes over the target's positions one by one. The decoder
    starts from states of zeros: the paper does not specify it.
    """

    kind: Literal["attentional"]
    cell: Literal["gru", "lstm"] = "gru"
    """The bottom cell of the decoder, whose state has the width `hidden`."""
    attention: Literal["dot_of_tanh", "additive"] = "dot_of_tanh"
    """The score as printed, tanh(W h + V x) . tanh(U s), or that of the model cited there, v . tanh(W h + V x + U s)."""
    attention_width: Size | None = None
    """Width of the compared vectors; `hidden` by default."""
    stack: Annotated[tuple[StackBlock, ...], Field(strict=False)] = ()
    """From bottom to top; the output layer multiplies the last one's output."""
    source_cell: Literal["gru", "lstm"] = "gru"
    source_layers: _Layers
    """Layers of the encoder, all in both directions."""
    source_hidden: Size
    """Width of its state in each direction; attention is to both, joined."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        self._fit(min(self.src_vocab, self.tgt_vocab))
        if any(below.kind == above.kind == "fc_relu" for below, above in pairwise(self.stack)):
            raise ValueError("stack: neighbouring fc_relu layers are one block, of one width")
        return self

    @property
    def compared(self) -> int:
        """Width of the vectors that attention compares."""
        return self.attention_width or self.hidden

    @property
    def layers(self) -> tuple[StackBlock, ...]:
        """The stack, as blocks of one layer."""
        return tuple(block.model_copy(update={"layers": 1}) for block in self.stack for _ in range(block.layers))


@dataclass(frozen=True, slots=True)
class Family:
    """How a kind of architecture is built, read and stepped."""

    model_type: str
    """Its name in config.json, by which `transformers` builds it."""
    norm_first: bool
    """Whether layer norm comes before each block, not after it; then the last layer is followed by one."""
    positions: Callable[[Any], Any]
    """Return the vectors of the positions from 0, given the module of the positions."""
    scales_embedding: bool = False
    """Whether the decoder scales vectors of tokens; else its `embed_tokens` does."""
    norms_embedding: bool = False
    """Whether a further layer norm follows the embeddings."""
    multilingual: bool = True
    unk_token: int = 3
    """The token of unknown words, which no configuration names."""
    usual_start: str = "pad_token_id"
    """Key of the token that starts the decoder where the configuration names none."""


FAMILIES = {
    "transformer": Family(
        "marian",
        norm_first=False,
        positions=lambda module: module.weight,
        scales_embedding=True,
        multilingual=False,
        unk_token=1,
    ),
    "m2m100": Family("m2m_100", norm_first=True, positions=lambda module: module.weights[module.padding_idx + 1 :]),
    "mbart": Family(
        "mbart",
        norm_first=True,
        positions=lambda module: module.weight[module.offset :],
        norms_embedding=True,
        usual_start="eos_token_id",  # mBART-50 leaves it to its generation_config.json
    ),
}
"""By the kind of the architecture: Marian, M2M100 and NLLB, mBART. A new family is one entry."""

CONFIG_KEYS = {
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "d_model": "d_model",
    "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
    "vocab": "vocab_size",
    "max_positions": "max_position_embeddings",
    "activation": "activation_function",
    "scale_embedding": "scale_embedding",
    "pad_token": "pad_token_id",
    "eos_token": "eos_token_id",
    "start_token": "decoder_start_token_id",
}
"""The key in config.json of each field of an architecture, in every family."""


class TransformerArchitecture(_Model):
    """A Transformer as `transformers` builds it; source and target share a vocabulary and their embeddings.

    The kinds are those of `FAMILIES`: `transformer`, that of Marian, and `m2m100` and `mbart`, of many languages. `d_model` is
    an even multiple of `heads`.
    """

    kind: str
    encoder_layers: _Layers
    decoder_layers: _Layers
    d_model: Size
    heads: Annotated[int, Field(ge=1, le=1024)]
    ffn: Size
    vocab: Size
    """Tokens of the vocabulary, source and target together."""
    max_positions: Size = 512
    """The longest sentence, source or target."""
    activation: Literal["swish", "relu", "gelu"] = "swish"
    scale_embedding: bool = True

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        self._fit(self.vocab)
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model: {self.d_model} is no even multiple of {self.heads} heads")
        return self

    @property
    def multilingual(self) -> bool:
        return FAMILIES[self.kind].multilingual

    @property
    def src_vocab(self) -> int:
        return self.vocab

    @property
    def tgt_vocab(self) -> int:
        return self.vocab


class LlamaArchitecture(_Model):
    """A decoder-only Transformer as `transformers` builds Llama: it reads a prompt and continues it.

    Root mean square norms, rotary positions, gated layers, and keys and values shared by groups of heads.
    """

    kind: Literal["llama"]
    layers: _Layers
    d_model: Size
    heads: Annotated[int, Field(ge=1, le=1024)]
    kv_heads: Annotated[int, Field(ge=1, le=1024)]
    """Heads of keys and values, each shared by `heads / kv_heads` heads."""
    head_width: Size
    ffn: Size
    vocab: Size
    max_positions: Size = 2048
    """Most tokens of a prompt and its continuation together."""
    tied: bool = True
    """Whether the output layer has the weights of the embeddings."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        self._fit(self.vocab)
        if self.heads % self.kv_heads or self.head_width % 2:
            raise ValueError(f"heads: {self.heads} are no multiple of kv_heads, or head_width {self.head_width} is odd")
        return self

    @property
    def src_vocab(self) -> int:
        return self.vocab

    @property
    def tgt_vocab(self) -> int:
        return self.vocab


Architecture = RecurrentArchitecture | AttentionalArchitecture | TransformerArchitecture | LlamaArchitecture


def _sharp(*stack: tuple[str, int, int], vocab: int = 80_000, hidden: int = 1024, **other: Any) -> AttentionalArchitecture:
    """Return an attentional architecture of stack blocks (kind, width, layers), by default with the sizes of the paper."""
    sizes = {"embedding": 512, "source_layers": 3, "source_hidden": 512, "src_vocab": vocab, "tgt_vocab": vocab} | other
    blocks = [{"kind": kind, "width": width, "layers": layers} for kind, width, layers in stack]
    return AttentionalArchitecture.model_validate({"kind": "attentional", "hidden": hidden, "stack": blocks} | sizes)


_TANH, _GRU = ("fc_tanh", 1024, 1), ("gru", 1024, 1)

SHARP_MODELS: dict[str, AttentionalArchitecture] = {
    "sharp": _sharp(
        ("fc_relu", 256, 3), ("fc_tanh", 256, 1), hidden=256, embedding=256, source_layers=1, source_hidden=128, vocab=32_000
    ),
    "sharp-s1": _sharp(),
    "sharp-s2": _sharp(_GRU),
    "sharp-s3": _sharp(("fc_relu", 768, 3), _TANH),
    "sharp-s4": _sharp(("fc_relu", 768, 7), _TANH),
    "sharp-s5": _sharp(("fc_relu", 768, 7), _GRU),
    "sharp-s6": _sharp(("fc_relu", 768, 15), _TANH),
    "sharp-s7": _sharp(("lstm", 1024, 7), cell="lstm", source_cell="lstm", source_layers=8),
}
"""By name: `sharp`, shaped like S3 and small enough to be trained on a CPU, and S1 to S7 of Table 2 (SHARP-15, 16).

The paper does not specify the embedding (512 here), the width that attention compares (here that of the target), and the width
of the encoder of S7 (here 512 in each direction, as in the others).
"""


def _recurrent(kind: Literal["bilstm", "gru"], layers: int, width: int, vocab: int) -> RecurrentArchitecture:
    return RecurrentArchitecture(kind=kind, layers=layers, hidden=width, embedding=width, src_vocab=vocab, tgt_vocab=vocab)


ARCHITECTURES: dict[str, Architecture] = {
    "bilstm": _recurrent("bilstm", 2, 500, 50_000),
    "gru": _recurrent("gru", 1, 256, 32_000),
    "marian": TransformerArchitecture(
        kind="transformer",
        encoder_layers=6,
        decoder_layers=6,
        d_model=512,
        heads=8,
        ffn=2048,
        vocab=65_001,
        eos_token=0,
        unk_token=1,
        pad_token=65_000,
        start_token=65_000,
    ),
    "gru-512": _recurrent("gru", 1, 512, 85_000),
    "llama": LlamaArchitecture(
        kind="llama",
        layers=8,
        d_model=512,
        heads=8,
        kv_heads=4,
        head_width=64,
        ffn=1408,
        vocab=32_000,
        unk_token=0,
        start_token=1,
        eos_token=2,
        pad_token=2,
    ),
    **SHARP_MODELS,
}
"""By name: the models of C-NMT (CNMT-13), which does not specify vocabularies, `marian` with the sizes of opus-mt-en-zh;
`gru-512`, with hidden size and vocabularies of the paper on top-up batching (FNI-13), which does not specify the embedding;
`llama`, a decoder-only model of 40 million parameters; and `sharp` and `sharp-s1` to `sharp-s7`, see `SHARP_MODELS`."""

_MOST_BYTES = 1 << 18
"""Most bytes of an architecture's file, which usually has a few hundred; the YAML parser takes seconds for this many."""


def read_architecture(path: str | os.PathLike[str]) -> Architecture:
    """Read an architecture from a YAML or JSON file; raises `NmtError` naming the file and the key."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(read_bounded(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise NmtError(f"cannot read the architecture: {error.strerror}", path=path, remedy="name a readable file") from None
    except (YAMLError, ValueError, RecursionError) as error:
        what, mark = getattr(error, "problem", None) or describe_error(error), getattr(error, "problem_mark", None)
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        raise NmtError(f"no YAML and no JSON: {what}", path=path, line=line, column=column) from None
    return architecture_of(content, path)


def architecture_of(content: Any, path: str | os.PathLike[str] | None = None) -> Architecture:
    """Check the content of an architecture file; raises `NmtError` naming the key."""
    kind = content.get("kind") if isinstance(content, dict) else None
    kinds: dict[str, type[Architecture]] = {**dict.fromkeys(FAMILIES, TransformerArchitecture)}
    kinds |= {"attentional": AttentionalArchitecture, "bilstm": RecurrentArchitecture, "gru": RecurrentArchitecture}
    kinds["llama"] = LlamaArchitecture
    if not isinstance(kind, str) or kind not in kinds:
        raise NmtError(f"kind: one of {', '.join(sorted(kinds))}", path=path, remedy="say which")
    try:
        return kinds[kind].model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        is_unknown = first["type"] == "extra_forbidden"
        known = [*kinds[kind].model_fields, *StackBlock.model_fields]
        remedy = did_you_mean(first["loc"][-1], known) if is_unknown else None
        raise NmtError(describe_validation_error(error), path=path, remedy=remedy) from None
