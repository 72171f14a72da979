"""The sharp engine: times an attentional model under the sharp decoder, one sentence at a time on one thread (SHARP-01)."""

from __future__ import annotations

import time
from random import Random
from typing import ClassVar

import numpy as np
import torch

from simnmt.base.compile import cpu_name
from simnmt.batching import Batching
from simnmt.kernels.beam_search import Ints, StageSeconds
from simnmt.kernels.native_library import level_name, native
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.sentence_decoder import WholeBatchDecoder
from simnmt.nmt.sharp_translator import SharpTranslator, model_clipping
from simnmt.profile.decoder_settings import DecoderSettings

CANDIDATES = 500
"""Target words per sentence by default: 20 for each of 25 source words (SHARP-02)."""
PLAIN = DecoderSettings(gemm="float32", candidates=CANDIDATES)
"""The baseline of the paper: a candidate list, and none of its techniques (SHARP-01)."""
KEPT = 2
"""Decoders whose packed weights are kept, so that two may alternate."""


class SharpEngine:
    """An engine that runs forced lengths through the sharp decoder, the sentences of a batch one after another.

    The beam is that of the work. Candidates are random words, as many as the settings ask for, since time depends only on their
    number. `run` measures only the whole decoder; `stages_s` measures its stages.
    """

    takes: ClassVar[frozenset[str]] = frozenset(("decoder",))

    def __init__(self, loaded: LoadedModel, settings: DecoderSettings, seed: int) -> None:
        model = loaded.model
        if not isinstance(model, AttentionalModel):
            what = f"the sharp decoder runs no {loaded.architecture.kind} model"
            raise NmtError(what, remedy="use the torch backend, or sharp, sharp-s1 to sharp-s7")
        self._model: AttentionalModel | None = model
        self._settings, self._seed = settings, seed
        self._translators: dict[DecoderSettings, SharpTranslator] = {}
        self.account = EngineAccount.of(
            loaded,
            backend="sharp",
            compute_type="float32" if native() is None else settings.gemm or "float32",
            device="cpu",
            device_name=cpu_name(),
            threads=1,
            versions={"torch": str(torch.__version__), "kernels": level_name()},
            decoder=settings.model_dump(mode="json", exclude={"beam"}),
            clipping=None if native() is None else model_clipping([model]),
        )

    @staticmethod
    def supported_types(device: str) -> list[str]:
        if device != "cpu":
            raise NmtError(f"the sharp decoder runs on the CPU, not on {device}", remedy="use cpu")
        return ["float32", "int16"]

    @classmethod
    def load(cls, request: EngineRequest) -> SharpEngine:
        compute_type, settings = request.compute_type, request.decoder or PLAIN
        if compute_type is not None and request.decoder is not None and settings.gemm not in (None, compute_type):
            raise NmtError(f"compute type {compute_type}, but a decoder of {settings.gemm}", remedy="leave one of them out")
        settings = settings.model_copy(update={"gemm": compute_type or settings.gemm or "float32"})
        if settings.vocabulary != "full" and settings.candidates is None:
            what = f"a decoder of vocabulary {settings.vocabulary}, which an engine does not have"
            raise NmtError(what, remedy="give a number of candidates")
        return cls(load_model(request.model, seed=request.seed), settings, request.seed)

    def run(self, work: Work) -> Timing:
        translator = self._translator(self._settings.model_copy(update={"beam": work.beam}))
        sources = random_sources(work, translator.models[0].architecture, self._seed)
        candidates = self._candidates(self._settings)

        def timed() -> Timing:
            begin_s, encode_s = time.perf_counter(), 0.0
            for source in sources:
                before_s = time.perf_counter()
                states = translator.encode(source)
                encode_s += time.perf_counter() - before_s
                translator.decode(states, candidates=candidates, forced_len=work.tgt_len)
            return Timing(time.perf_counter() - begin_s, encode_s, None)

        return within_memory("cpu", timed)

    def stages_s(self, settings: DecoderSettings, *, src_len: int, tgt_len: int) -> StageSeconds:
        """Return the seconds of the stages of one sentence's steps under other settings, which include the beam.

        Raises `NmtError` without compiled kernels.
        """
        translator = self._translator(settings)
        (source,) = random_sources(Work(src_len, tgt_len), translator.models[0].architecture, self._seed)
        states, candidates = translator.encode(source), self._candidates(settings)
        stage_s = translator.decode(states, candidates=candidates, forced_len=tgt_len, clock=True).stage_s
        if stage_s is None:
            raise NmtError("only compiled kernels time the stages of a step", remedy="install with a C compiler")
        return stage_s

    def sentence_decoder(self, batching: Batching, beam: int, *, scored: bool = False) -> WholeBatchDecoder:
        """See `ServingEngine`; the sentences of a batch are decoded one after another, always with scores."""
        translator = self._translator(self._settings.model_copy(update={"beam": beam}))
        return translator.sentence_decoder(batching, lambda _: self._candidates(self._settings))

    def close(self) -> None:
        self._model = None
        self._translators.clear()

    def _translator(self, settings: DecoderSettings) -> SharpTranslator:
        """Return a decoder of these settings. Raises `NmtError` once closed."""
        model = self._model
        if model is None:
            raise NmtError("this engine is closed", remedy="load it again")
        if settings not in self._translators:
            while len(self._translators) >= KEPT:  # frees packed weights before new ones are made
                del self._translators[next(iter(self._translators))]
            self._translators[settings] = within_memory("cpu", lambda: SharpTranslator([model], settings))
        return self._translators[settings]

    def _candidates(self, settings: DecoderSettings) -> Ints | None:
        """Return random candidates, the end token first; None for all words."""
        assert self._model is not None
        sizes = self._model.architecture
        if settings.candidates is None or settings.candidates >= sizes.tgt_vocab:
            return None
        others = [word for word in range(sizes.tgt_vocab) if word not in (sizes.eos_token, sizes.pad_token)]
        words = Random(self._seed).sample(others, settings.candidates)
        return np.array([sizes.eos_token, *words][: settings.candidates], np.int64)
