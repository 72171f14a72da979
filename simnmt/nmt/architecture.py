"""What a model is made of, without its weights and without torch: read from a name or from a YAML or JSON file (CNMT-13)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from simnmt.configuration import Configuration
from simnmt.errors import describe_error
from simnmt.files import read_bounded
from simnmt.names import did_you_mean
from simnmt.nmt.errors import NmtError
from simnmt.nmt.sharp_architecture import SHARP_MODELS, AttentionalArchitecture, StackBlock
from simnmt.nmt.special_tokens import Size, SpecialTokens


class RecurrentArchitecture(SpecialTokens):
    """Encoder and decoder of LSTM or GRU cells, with Luong's attention between them unless switched off.

    The encoder of a `bilstm` reads in both directions with half of `hidden` each, so that its states, joined, are as
    wide as the decoder's and start it without a projection; the encoder of a `gru` reads forwards only. The attentional
    vector is not fed back into the next step, so that training runs over all positions at once.
    """

    kind: Literal["bilstm", "gru"]
    """The cells, and whether the encoder reads in both directions."""
    layers: Annotated[int, Field(ge=1, le=32)]
    """Of the encoder, and of the decoder."""
    hidden: Size
    """Width of a decoder state; even for a bilstm."""
    embedding: Size
    """Width of a token's vector."""
    src_vocab: Size
    """Source tokens known."""
    tgt_vocab: Size
    """Target tokens known."""
    attention: Literal["general", "none"] = "general"
    """Luong's general score, or a decoder that sees the encoder's last state alone."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> RecurrentArchitecture:
        if self.kind == "bilstm" and self.hidden % 2:
            raise ValueError(f"hidden: {self.hidden} cannot be halved between two directions")
        self._fit(min(self.src_vocab, self.tgt_vocab))
        return self

    @property
    def max_positions(self) -> None:
        """A recurrent model takes any length."""
        return None


class TransformerArchitecture(SpecialTokens):
    """The Transformer as Marian builds it: static sinusoidal positions, layer norm after each block, shared embeddings."""

    kind: Literal["transformer"]
    encoder_layers: Annotated[int, Field(ge=1, le=128)]
    """Layers of the encoder."""
    decoder_layers: Annotated[int, Field(ge=1, le=128)]
    """Layers of the decoder."""
    d_model: Size
    """Width of a token's vector throughout; a multiple of `heads`, and even."""
    heads: Annotated[int, Field(ge=1, le=1024)]
    """Attention heads of a layer, encoder and decoder alike."""
    ffn: Size
    """Width of the feed-forward block."""
    vocab: Size
    """Tokens known, source and target together."""
    max_positions: Size = 512
    """The longest sentence, source or target."""
    activation: Literal["swish", "relu", "gelu"] = "swish"
    """Between the two halves of the feed-forward block."""
    scale_embedding: bool = True
    """Whether vectors are scaled by the square root of `d_model`."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> TransformerArchitecture:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model: {self.d_model} is no even multiple of {self.heads} heads")
        self._fit(self.vocab)
        return self

    @property
    def src_vocab(self) -> int:
        """Source tokens known."""
        return self.vocab

    @property
    def tgt_vocab(self) -> int:
        """Target tokens known."""
        return self.vocab


Architecture = RecurrentArchitecture | TransformerArchitecture | AttentionalArchitecture

ARCHITECTURES: dict[str, Architecture] = {
    "bilstm": RecurrentArchitecture(kind="bilstm", layers=2, hidden=500, embedding=500, src_vocab=50_000, tgt_vocab=50_000),
    "gru": RecurrentArchitecture(kind="gru", layers=1, hidden=256, embedding=256, src_vocab=32_000, tgt_vocab=32_000),
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
    "gru-512": RecurrentArchitecture(kind="gru", layers=1, hidden=512, embedding=512, src_vocab=85_000, tgt_vocab=85_000),
    **SHARP_MODELS,
}
"""By name: the models of C-NMT (CNMT-13), which leaves vocabularies open, `marian` with the sizes of opus-mt-en-zh; `gru-512`,
with hidden size and vocabularies of the paper on top-up batching (FNI-13), which leaves the embedding open; and `sharp` and
`sharp-s1` to `sharp-s7`, see `SHARP_MODELS`."""

_BY_KIND: dict[str, type[Architecture]] = {
    "attentional": AttentionalArchitecture,
    "bilstm": RecurrentArchitecture,
    "gru": RecurrentArchitecture,
    "transformer": TransformerArchitecture,
}
_MEND = "an architecture is a YAML or JSON mapping; see docs for its keys"
_ADAPTER: TypeAdapter[Architecture] = TypeAdapter(Annotated[Architecture, Field(discriminator="kind")])


MOST_BYTES = 1 << 18
"""Of an architecture's file: it has a few hundred; the YAML parser takes seconds for this many."""


def read_architecture(path: str | os.PathLike[str]) -> Architecture:
    """Read an architecture from a YAML or JSON file; raises `NmtError` naming the file and the key."""
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise NmtError(f"cannot read the architecture: {error.strerror}", path=path, remedy="name a readable file") from None
    except UnicodeDecodeError as error:
        raise NmtError(f"no UTF-8 text at byte {error.start}", path=path, remedy=_MEND) from None
    if Path(path).suffix == ".json":
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise NmtError(f"no JSON: {error.msg}", path=path, line=error.lineno, column=error.colno, remedy=_MEND) from None
        except (ValueError, RecursionError) as error:
            raise NmtError(f"no JSON: {error}", path=path, remedy=_MEND) from None
    else:
        content = _yaml(text, path)
    return architecture_of(content, path)


def architecture_of(content: Any, path: str | os.PathLike[str] | None = None) -> Architecture:
    """Check what a file said; raises `NmtError` naming the key."""
    try:
        return _ADAPTER.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    kind, *below = first["loc"] or ("",)
    if first["type"].startswith("union_tag"):
        raise NmtError(f"kind: one of {', '.join(_BY_KIND)}", path=path, remedy="say which")
    named: type[Configuration] = StackBlock if len(below) > 1 else _BY_KIND.get(str(kind), RecurrentArchitecture)
    known, key = named.model_fields, ".".join(str(part) for part in below)
    said, remedy = first["msg"].removeprefix("Value error, "), f"known here: {', '.join(known)}"
    if first["type"] == "extra_forbidden":
        said, remedy = "unknown key", did_you_mean(str(below[-1]), known, remedy)
    raise NmtError(f"{key}: {said}" if key else said, path=path, remedy=remedy)


def _yaml(text: str, path: str | os.PathLike[str]) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        what = " ".join((error.problem or error.context or "not understood").split())
        raise NmtError(f"no YAML: {what}", path=path, line=line, column=column, remedy=_MEND) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise NmtError(f"no YAML: {describe_error(error)}", path=path, remedy=_MEND) from None
