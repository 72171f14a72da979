"""The CTranslate2 engine: the same Transformer, converted offline into a temporary folder, without tokenizer or network."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import ctranslate2
import torch
from ctranslate2.converters.transformers import BartLoader

from simnmt.base.compile import cpu_name
from simnmt.batching import Batching
from simnmt.nmt.architecture import FAMILIES, Family
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.sentence_decoder import MOST_TARGET_TOKENS, DecodeRequest, Hypothesis, WholeBatchDecoder
from simnmt.nmt.step_model import check_lengths
from simnmt.nmt.transformer_model import TransformerModel

_TYPES = ("float32", "int8", "int16", "bfloat16", "float16")
_EFFECTIVE_TYPES = ("int8_float32", "int8_bfloat16", "int8_float16")
"""Names that CTranslate2 gives to int8 by the type of the rest; profiles hold them, so they load as well."""


class CTranslate2Engine:
    """An engine that runs forced lengths through CTranslate2's own search, whose parts cannot be timed.

    Tokens are passed as texts: the decimal digits of each id. As in our own search, padding is never an output.
    """

    takes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, loaded: LoadedModel, device: str, threads: int | None, compute_type: str, seed: int) -> None:
        architecture, model = loaded.architecture, loaded.model
        if not isinstance(model, TransformerModel):
            remedy = "use torch (leave --compute-type out), or a transformer"
            raise NmtError(f"CTranslate2 runs no {architecture.kind} model", remedy=remedy)
        self._architecture, self._seed = architecture, seed
        pad, eos = architecture.pad_token, architecture.eos_token
        self._suppressed = None if pad == eos else [[str(pad)]]
        kind, _, index = device.partition(":")
        with tempfile.TemporaryDirectory(prefix="simnmt-ctranslate2-") as folder:
            _convert(model, Path(folder))
            # The translator reads all weights when it is made, so that the folder can be removed.
            self._translator: ctranslate2.Translator | None = ctranslate2.Translator(
                folder,
                device=kind,
                device_index=int(index or 0),
                compute_type=compute_type,
                inter_threads=1,
                intra_threads=threads or 0,
            )
        is_named = kind == "cuda" and int(index or 0) < torch.cuda.device_count()
        gpu_name = torch.cuda.get_device_name(int(index or 0)) if is_named else "GPU"
        self.account = EngineAccount.of(
            loaded,
            backend="ctranslate2",
            compute_type=self._translator.compute_type,
            device=device,
            device_name=gpu_name if kind == "cuda" else cpu_name(),
            threads=threads,
            versions={"ctranslate2": ctranslate2.__version__},
        )

    @staticmethod
    def supported_types(device: str) -> list[str]:
        """Return the compute types; int16 is fast only with Intel's MKL, and offered only with it."""
        kind = device.partition(":")[0]
        if kind == "cuda" and not ctranslate2.get_cuda_device_count():
            raise NmtError(f"CTranslate2 sees no {device} here", remedy="use cpu, or install a driver with CUDA")
        offered = ctranslate2.get_supported_compute_types(kind)
        return [name for name in (*_TYPES, *_EFFECTIVE_TYPES) if name in offered]

    @classmethod
    def load(cls, request: EngineRequest) -> CTranslate2Engine:
        device, loaded = request.device, load_model(request.model, seed=request.seed)
        threads = request.threads or torch.get_num_threads() if device == "cpu" else None
        return within_memory(device, lambda: cls(loaded, device, threads, request.compute_type or "float32", request.seed))

    def run(self, work: Work) -> Timing:
        check_lengths(self._architecture.max_positions, work.src_len, work.tgt_len)
        sources = random_sources(work, self._architecture, self._seed)
        begin_s = time.perf_counter()
        self.translate(sources, beam=work.beam, forced_lens=[work.tgt_len] * len(sources))
        return Timing(time.perf_counter() - begin_s, None, None)

    def sentence_decoder(self, batching: Batching, beam: int, *, scored: bool = False) -> WholeBatchDecoder:
        def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
            forced = [request.forced_len for request in requests if request.forced_len is not None]
            if len({request.forced_len for request in requests}) > 1 and (beam > 1 or len(forced) < len(requests)):
                what = "CTranslate2 forces different lengths only in a greedy batch in which every length is forced"
                raise NmtError(what, remedy="decode with beam 1, or one sentence at a time, or with torch")
            limits = [request.max_len or MOST_TARGET_TOKENS for request in requests]
            sources = [request.source for request in requests]
            return self.translate(sources, beam=beam, forced_lens=forced or None, max_lens=limits, scored=scored)

        return WholeBatchDecoder(decode, batching)

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beam: int,
        forced_lens: Sequence[int] | None = None,
        max_lens: Sequence[int] = (),
        scored: bool = False,
    ) -> list[Hypothesis]:
        """Return the best hypothesis of each source, of exactly its forced length or up to its greatest one, all in one batch.

        Different lengths can only be forced with beam 1. `scored`: with scores, but for hypotheses that a beam found beyond
        their greatest length.
        """
        translator = self._translator
        if translator is None:
            raise NmtError("this engine is closed", remedy="load it again")
        lens = forced_lens or max_lens
        # Called for each token: what is only cut need not stop.
        stops = len({*lens}) > 1 and beam == 1 and (forced_lens is not None or scored)
        results = within_memory(
            self.account.device,
            lambda: translator.translate_batch(
                [[str(token) for token in source] for source in sources],
                beam_size=beam,
                length_penalty=float(beam > 1),  # a beam chooses by the mean over the tokens, the end too
                min_decoding_length=0 if forced_lens is None else max(lens),
                max_decoding_length=max(lens),
                max_input_length=0,
                suppress_sequences=self._suppressed,
                return_scores=scored,
                callback=(lambda step: step.step + 1 >= lens[step.batch_id]) if stops else None,
            ),
        )
        hypotheses = []
        for result, most in zip(results, lens, strict=True):
            tokens, score = tuple(map(int, result.hypotheses[0])), None
            if scored and len(tokens) <= most:
                logprob = result.scores[0] * (len(tokens) + (len(tokens) < max(lens)) if beam > 1 else 1)
                score = logprob / (len(tokens) + (len(tokens) < most))
            hypotheses.append(Hypothesis(tokens[:most], score, len(tokens) + (forced_lens is None)))
        return hypotheses

    def close(self) -> None:
        self._translator = None


def _convert(model: TransformerModel, folder: Path) -> None:
    """Write a model in CTranslate2's format, in float32, which it converts when loading."""
    architecture, vocabulary = model.architecture, [str(token) for token in range(model.vocab)]
    spec = _Bart(FAMILIES[architecture.kind]).get_model_spec(model.hf)
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.unk_token = str(architecture.unk_token)
    spec.config.eos_token = str(model.eos_token)
    spec.config.bos_token = spec.config.decoder_start_token = str(architecture.start_token)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))


class _Bart(BartLoader):  # type: ignore[misc]  # an untyped library
    """A converter as CTranslate2's own for Marian, M2M100 and mBART, but with a row for each token.

    CTranslate2's own for Marian drops the last token of the vocabulary as padding that has a vector of zeros and also starts
    the target; only published Marian models are so.
    """

    def __init__(self, family: Family) -> None:
        super().__init__()
        self._family = family

    def get_model_spec(self, model: Any) -> Any:
        model.config.normalize_before = self._family.norm_first
        model.config.normalize_embedding = self._family.norms_embedding
        return super().get_model_spec(model)

    def set_position_encodings(self, spec: Any, module: Any) -> None:
        spec.encodings = self._family.positions(module)
