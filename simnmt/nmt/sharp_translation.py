"""Lines of text in, their translations out, by the sharp decoder: one attentional model or an ensemble (SHARP-01, SHARP-14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.scales import Clipping
from simnmt.kernels.sharp.structs import MOST_MEMBERS
from simnmt.nmt.errors import NmtError
from simnmt.nmt.sharp_model import AttentionalModel
from simnmt.nmt.sharp_translator import SharpTranslator, candidates_of
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.translation import LONGEST_SOURCE, Translation, load_folder
from simnmt.nmt.unknown_words import TextWriter, read_dictionary
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

TECHNIQUES: Mapping[str, DecoderSettings] = {
    "exact": DecoderSettings(gemm="float32", embeddings="frequent", attention="precomputed", merge=True),
    "fast": DecoderSettings(gemm="int16", embeddings="frequent", attention="precomputed", activations="polynomial", merge=True),
}
"""`exact`: the identities of the paper; `fast`: all of its techniques, of which two add noise (SHARP-10)."""
MOST_WRITTEN = 2 * LONGEST_SOURCE + 10
"""Tokens of a translation, where no limit is given."""


class SharpTextTranslator:
    """Attentional models with their two vocabularies, ready to translate one line after another on one thread."""

    def __init__(
        self,
        models: Sequence[AttentionalModel],
        source: Subwords,
        target: Subwords,
        settings: DecoderSettings,
        *,
        max_len: int | None = None,
        lists: CandidateLists | None = None,
        dictionary: Mapping[str, str] | None = None,
        keep_unknown: bool = False,
    ) -> None:
        """`max_len`: most tokens written, by default twice the source's and 10; `lists`: a sentence's candidates (SHARP-02);
        `dictionary`: translations of words that are unknown, which are copied otherwise; `keep_unknown`: the mark of an unknown
        word is written instead. Raises `NmtError`.
        """
        if max_len is not None and max_len < 1:
            raise NmtError(f"max_len is {max_len}", remedy="give 1 or more")
        self.source, self.target, self.max_len = source, target, max_len
        self._lists = lists
        self._writer = TextWriter(source, target, models[0].unk_token, dictionary or {}, keep_unknown)
        self._translator = SharpTranslator(models, settings, max_len=max_len or MOST_WRITTEN, most_src_len=LONGEST_SOURCE)

    @classmethod
    def load(
        cls,
        folders: Sequence[Path],
        *,
        technique: str = "exact",
        beam: int = 1,
        fused: bool = False,
        max_len: int | None = None,
        candidates: Path | None = None,
        dictionary: Path | None = None,
        keep_unknown: bool = False,
    ) -> SharpTextTranslator:
        """Load folders that `simnmt nmt train` wrote; several are an ensemble.

        `candidates`: a bundle of candidate lists that `simnmt vocab build` made of the model. Raises `NmtError` for a folder
        that holds no attentional model, and for models that do not share their subwords.
        """
        if technique not in TECHNIQUES:
            raise NmtError(f"no sharp decoder {technique}", remedy=f"take {' or '.join(TECHNIQUES)}")
        if beam < 1:
            raise NmtError(f"beam is {beam}", remedy="give 1 or more")
        if len(folders) > MOST_MEMBERS:
            raise NmtError(f"an ensemble of {len(folders)} models", remedy=f"give at most {MOST_MEMBERS}")
        entries = {} if dictionary is None else read_dictionary(dictionary)
        models, vocabularies = list[AttentionalModel](), list[tuple[Subwords, Subwords]]()
        for folder in folders:
            loaded, source, target = load_folder(folder)
            if not isinstance(loaded.model, AttentionalModel):
                what = f"the sharp decoder runs no {loaded.architecture.kind} model"
                raise NmtError(what, path=folder, remedy="give models that were trained with --model sharp")
            models.append(loaded.model)
            vocabularies.append((source, target))
            if [side.model for side in vocabularies[0]] != [source.model, target.model]:
                what = f"its subwords are not those of {folders[0]}"
                raise NmtError(what, path=folder, remedy="train an ensemble on one text, with other seeds")
        lists = None
        if candidates is not None:
            if len(models) > 1:
                raise NmtError("candidate lists are of one model, not of an ensemble", remedy="leave --vocabulary out")
            lists = CandidateLists.load(candidates, models[0])
        settings = TECHNIQUES[technique].model_copy(update={"beam": beam, "fused": fused})
        return cls(
            models,
            *vocabularies[0],
            settings,
            max_len=max_len,
            lists=lists,
            dictionary=entries,
            keep_unknown=keep_unknown,
        )

    def clipping(self) -> Clipping | None:
        """Return how many weights the 16-bit products of `fast` clip; None for `exact`."""
        return self._translator.clipping()

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation per line, in order, each as soon as its line is there."""
        return map(self._line, lines)

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """One translation per line, in order."""
        return list(self.stream(lines))

    def _line(self, line: str) -> Translation:
        (ids,) = self.source.encode([line])
        if len(ids) <= 1:
            return Translation("", 0, 0, None, False, True, 0)
        kept = ids if len(ids) <= LONGEST_SOURCE else [*ids[: LONGEST_SOURCE - 1], self.source.eos]
        most = self.max_len or 2 * len(kept) + 10
        states = self._translator.encode(kept)
        translation = self._translator.decode(states, candidates=candidates_of(self._lists, kept), max_len=most)
        written = self._writer.write(line, len(kept), translation.tokens, lambda: translation.attended)
        length = len(translation.tokens)
        ended = length < most
        return Translation(
            written.text,
            len(kept),
            length,
            translation.log_prob / (length + ended),
            len(ids) > len(kept),
            ended,
            translation.steps,
            written.replaced,
            written.unknown,
        )
