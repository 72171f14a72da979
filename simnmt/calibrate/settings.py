"""Settings of a calibration, which decide its numbers; files of measurements, and the error of an impossible measurement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from simnmt.base.configuration import describe_validation_error
from simnmt.base.errors import InputError
from simnmt.base.files import read_bounded
from simnmt.nmt.pretrained_config import model_path
from simnmt.workload.length_units import Side, tokeniser_in, unit_of


class CalibrationError(InputError):
    """A measurement that cannot begin or continue, with the reason and a remedy."""


Document = TypeVar("Document", bound=BaseModel)


def read_measurement(path: str | os.PathLike[str], kind: type[Document], what: str, remedy: str) -> Document:
    """Read and check the JSON file of a measurement; raises `CalibrationError` naming the place and the key.

    `what`: a noun for messages, such as `study`; `remedy`: for a file with another content.
    """
    try:
        return kind.model_validate_json(read_bounded(path))
    except OSError as error:
        raise CalibrationError(f"cannot read the {what}: {error.strerror}", path=path, remedy="name a readable file") from None
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            remedy = f"name the JSON file of a {what}"
        raise CalibrationError(f"not a {what}: {describe_validation_error(error)}", path=path, remedy=remedy) from None


Mode = Literal["quick", "full"]
Part = Literal["execution", "step", "decoder", "energy", "overheads", "model_memory"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Parts of a calibration, all of which are measured by default; `step` is decode steps and encoders over batch sizes, `decoder`
steps by variant of the decoder."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one calibration; the same settings on the same box give the same plan. The command checks their ranges.

    Raises `CalibrationError` for settings that contradict each other.
    """

    model: str
    """bilstm, gru, gru-512, marian, llama, sharp, sharp-s1 to sharp-s7, or a path or an id as
    `simnmt.nmt.engine.load_engine` takes it."""
    backend: str = "torch"
    device: str = "cpu"
    threads: int | None = None
    """CPU threads; None: one for each core that this process may use."""
    compute_type: str | None = None
    beam: int = 1
    mode: Mode = "full"
    """quick: six corner cells; full: the whole grid."""
    parts: tuple[Part, ...] = PARTS
    max_batch: int | None = None
    """Largest batch of steps and encoders, whose sizes are a fixed ladder up to it; None: 64, in quick mode 16."""
    max_src_len: int = 100
    max_tgt_len: int = 100
    gap_s: float | None = None
    """Seconds that the box idles before each single execution, as in service; then every repeat counts, disturbed ones too.
    None: back to back."""
    src_unit: str | None = None
    """Unit of source tokens; None: a token of the tokeniser in the model's folder, named by its content; without one, word for
    bilstm and gru, subword for any other model."""
    tgt_unit: str | None = None
    text: str | None = None
    """File with one sentence per line, for a trained model's folder. The part `decoder` uses it for the agreement of rounding
    variants (sharp) or the costs and effects of `vocabulary` (torch); torch with a beam, to count steps per token."""
    vocabulary: tuple[str, ...] = ()
    """Bundles of `simnmt vocab build`, one of each kind, for the part `decoder` with torch."""
    src_lang: str | None = None
    """Language of the text, as a model of Hugging Face writes it; it and the next one serve to count a beam's steps."""
    tgt_lang: str | None = None
    seed: int = 0
    """Seed of the order of measuring, the token ids and random weights."""

    def __post_init__(self) -> None:
        torch_variants = self.backend == "torch" and "decoder" in self.parts and self.compute_type in (None, "float32")
        searches = self.backend == "torch" and self.beam > 1 and bool({"execution", "step"} & set(self.parts))
        judges = self.backend == "sharp" and "decoder" in self.parts
        if self.gap_s is not None and not self.whole:
            what, remedy = "a gap is a condition of the part execution", "add execution to --part, or leave --gap out"
        elif self.vocabulary and self.text is None:
            what, remedy = "the active share of a vocabulary depends on a text", "give --text"
        elif self.vocabulary and not torch_variants:
            what = "a restricted vocabulary is only measured in float32, with torch's decoder"
            remedy = "give --backend torch and the part decoder, or leave --vocabulary out"
        elif self.text is not None and not (self.vocabulary or searches or judges):
            what = "a text only serves to judge the sharp decoder's rounding, a beam's overrun, or a restricted vocabulary"
            remedy = "give --backend sharp and the part decoder, --beam 2 or more with torch, or --vocabulary"
        else:
            return
        raise CalibrationError(what, remedy=remedy)

    @property
    def whole(self) -> bool:
        """True if the calibration makes a new profile; without the part execution, it completes one."""
        return "execution" in self.parts

    @property
    def units(self) -> tuple[str, str]:
        """Units of source and target tokens. Raises `CorpusError` for a tokeniser that cannot be read."""
        return self.src_unit or self._unit("src"), self.tgt_unit or self._unit("tgt")

    def _unit(self, side: Side) -> str:
        if self.model in ("bilstm", "gru"):  # whose vocabularies are words in the paper (CNMT-13)
            return "word"
        tokeniser = tokeniser_in(model_path(self.model), side)
        return "subword" if tokeniser is None else unit_of(tokeniser)


STI_LENGTHS = (16, 32)
"""Padded lengths of a classifier's texts, in tokens, at which it is measured."""
STI_MODEL_LENGTHS = (8, 16, 32, 64)
"""Lengths at which a translator of given sizes is measured."""


@dataclass(frozen=True, slots=True)
class StiSettings:
    """Settings of one calibration of a streamed model. Raises `CalibrationError` for lengths that do not rise."""

    lengths: tuple[int, ...] = STI_LENGTHS
    """Padded lengths of a text in tokens, rising."""
    pace_bytes_per_s: float | None = None
    """Rate of a slower storage to be imitated; None: the speed of the disk."""
    repeats: int = 9
    """Repeats of each read, and of each width and length of a layer."""
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)) or self.lengths[0] < 1:
            raise CalibrationError("lengths below 1, twice or out of order", remedy="give rising --lengths, as in 16,32")

    def within(self, positions: int) -> None:
        """Raise `CalibrationError` if the greatest length exceeds the model's positions."""
        if self.lengths[-1] > positions:
            what = f"{self.lengths[-1]} tokens where the model takes {positions}"
            raise CalibrationError(what, remedy=f"give lengths of at most {positions}")


def lengths_up_to(positions: int, wanted: Sequence[int]) -> tuple[int, ...]:
    """Return those of the wanted lengths that a model of so many positions takes; if it takes none of them, its longest."""
    return tuple(length for length in wanted if length <= positions) or (positions,)
