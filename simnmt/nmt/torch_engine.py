"""The torch engine: times a step model on the CPU or on a CUDA device. The CUDA path has not been measured yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, TypeVar

import torch

from simnmt.base.compile import cpu_name
from simnmt.batching import Batching, mini
from simnmt.nmt import decoder_timing
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.decoder_timing import Timer
from simnmt.nmt.devices import has_bfloat16, torch_device
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.linear_layers import has_half_weights
from simnmt.nmt.models import LoadedModel, TranslationModel, load_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.pretrained_tokenizer import load_pretrained
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.step_model import check_lengths

HALF_WEIGHTS = "float16_weights"
"""Weights in float16, activations in float32: the fastest on an x86 CPU at small batches."""
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, HALF_WEIGHTS: torch.float32}

_Result = TypeVar("_Result")


class TorchEngine:
    """An engine that runs forced lengths through a `Decoder`, and marks the end of the encoder and each step of the model.

    `threads` is torch's setting for the whole process, made again before each run, so that several engines of one process keep
    their own. Torch's inter-operator threads are left alone: torch fixes their number at the first parallel work, and nothing
    here uses them. Every method raises `OutOfMemory`, after which the engine is still usable.
    """

    takes: ClassVar[frozenset[str]] = frozenset(("fused", "vocabulary", "direction", "languages"))

    def __init__(self, loaded: LoadedModel, threads: int | None, request: EngineRequest) -> None:
        device, compute_type, part = torch_device(request.device), request.compute_type or "float32", None
        if request.vocabulary is not None:
            # Before the weights change their type: the bundle has the fingerprint of the weights in the file.
            from simnmt.nmt.vocabulary.restricted_vocabulary import load_vocabulary, with_measured_cost

            direction, dtype = request.direction, _TYPES[compute_type]
            part = load_vocabulary(request.vocabulary, loaded.model, direction=direction, device=device, dtype=dtype)
        self._model: TranslationModel | None = in_type(loaded.model, device, compute_type)
        self._architecture, self._device, self._threads, self._seed = loaded.architecture, device, threads, request.seed
        self._output = Output(request.fused, None if part is None else with_measured_cost(part, loaded.model))
        versions = {"torch": str(torch.__version__)}
        if hasattr(loaded.model, "hf"):
            versions["transformers"] = version("transformers")
        if device.type == "cuda":
            versions["cuda"] = str(torch.version.cuda)
        self.account = EngineAccount.of(
            loaded,
            backend="torch",
            compute_type=compute_type,
            device=str(device),
            device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            threads=threads,
            versions=versions,
            fused=request.fused,
            vocabulary=None if part is None else part.kind,
        )

    @classmethod
    def load(cls, request: EngineRequest) -> TorchEngine:
        threads = request.threads or torch.get_num_threads() if request.device == "cpu" else None

        def load() -> TorchEngine:
            if threads is not None and request.vocabulary is not None:
                torch.set_num_threads(threads)  # the cost of products is measured with them
            if request.languages is None:
                loaded = load_model(request.model, seed=request.seed)
            else:
                loaded, _ = load_pretrained(Path(request.model), request.languages)
            return cls(loaded, threads, request)

        return within_memory(request.device, load)

    @staticmethod
    def supported_types(device: str) -> list[str]:
        where = torch_device(device)
        if where.type == "cuda":
            # Older GPUs emulate bfloat16, which torch's `is_bf16_supported` counts as support.
            return ["float32", "float16", *(["bfloat16"] if torch.cuda.get_device_capability(where) >= (8, 0) else [])]
        return ["float32", *(["bfloat16"] if has_bfloat16() else []), *([HALF_WEIGHTS] if has_half_weights() else [])]

    def run(self, work: Work) -> Timing:
        def timed(model: TranslationModel) -> Timing:
            check_lengths(model.max_positions, work.src_len, work.tgt_len)
            requests = [DecodeRequest(source, work.tgt_len) for source in self._sources(work)]
            with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
                mark, seconds = self._marks(2 + 2 * work.tgt_len)
                begin_s = self._now_s()
                decoder = Decoder(model, mini(work.batch), Search(work.beam), self._output, mark=mark)
                mark()
                encoded = decoder.encode(requests)
                mark()
                decoder.join(encoded, range(work.batch))
                while decoder.active:
                    decoder.step()
                total_s = self._now_s() - begin_s
            encode_s, _, *parts_s = seconds()
            return Timing(total_s, encode_s, tuple(parts_s[::2]))

        return self._measure(timed)

    def sentence_decoder(self, batching: Batching, beam: int) -> Decoder:
        return self._measure(lambda model: Decoder(model, batching, Search(beam), self._output))

    def joining_timer(self, joining: int, others: int, *, src_len: int, beam: int) -> Timer:
        """Return a timer of encoded sentences that join others in the decoder, and leave it (FNI-10)."""
        sources, make = self._sources(Work(src_len, 1, joining + others, beam)), decoder_timing.joining_timer
        return self._timer(lambda model: make(model, sources, joining, beam=beam, output=self._output, clock=self._now_s))

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the alternating steps of both works; see `time_steps_in_turn`. Raises the errors of `run`."""
        options, timed = {"steps": first.tgt_len, "beam": first.beam}, decoder_timing.time_steps_in_turn

        def measure(model: TranslationModel) -> list[tuple[float, float]]:
            check_lengths(model.max_positions, max(first.src_len, second.src_len), first.tgt_len)
            return timed(model, self._sources(first), self._sources(second), output=self._output, clock=self._now_s, **options)

        return self._measure(measure)

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of encoding sentences of these lengths together, as in `run`."""
        requests = [DecodeRequest(self._sources(Work(src_len, 1))[0]) for src_len in src_lens]

        def timed(model: TranslationModel) -> float:
            decoder, begin_s = Decoder(model, mini(len(requests))), self._now_s()
            decoder.encode(requests)
            return self._now_s() - begin_s

        return self._measure(timed)

    def stage_timer(self, batch: int, beam: int, *, src_len: int = decoder_timing.SRC_LEN) -> Timer:
        """Return a timer of the stages of one decode step, both plain and fused."""
        make = decoder_timing.stage_timer
        return self._timer(lambda model: make(model, batch, beam, src_len=src_len, clock=self._now_s))

    def close(self) -> None:
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _timer(self, make: Callable[[TranslationModel], Timer]) -> Timer:
        timer = self._measure(make)
        return lambda: self._measure(lambda _: timer())

    def _measure(self, do: Callable[[TranslationModel], _Result]) -> _Result:
        """Return the result of a measurement of the model with the engine's threads. Raises `NmtError` once closed."""
        model = self._model
        if model is None:
            raise NmtError("this engine is closed", remedy="load it again")
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        return within_memory(self.account.device, lambda: do(model))

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _marks(self, count: int) -> tuple[Callable[[], None], Callable[[], list[float]]]:
        """Return a function that marks a moment, up to `count` times, and one that returns the seconds between the moments.

        On the CPU a mark reads the performance counter; on a GPU it is an event on the stream, read after one synchronisation,
        so that measuring does not stall the GPU.
        """
        if self._device.type == "cpu":
            moments: list[float] = []
            return lambda: moments.append(time.perf_counter()), lambda: [b - a for a, b in pairwise(moments)]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]  # type: ignore[no-untyped-call]
        unused = iter(events)
        return lambda: next(unused).record(), lambda: [one.elapsed_time(other) / 1e3 for one, other in pairwise(events)]

    def _sources(self, work: Work) -> list[list[int]]:
        return random_sources(work, self._architecture, self._seed)


def in_type(model: TranslationModel, device: torch.device, compute_type: str) -> TranslationModel:
    """Return the model moved to a device, with weights of a compute type that is supported there."""
    model = model.to(device=device, dtype=_TYPES[compute_type])
    if compute_type == HALF_WEIGHTS:
        model.halve()
    return model
