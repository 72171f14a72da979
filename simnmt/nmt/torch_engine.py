"""The torch engine: times a step model on the CPU or on a CUDA device. The CUDA path has not been measured yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict, TypeVar

import torch
from torch import Tensor

from simnmt.base.compile import cpu_name
from simnmt.batching import Batching
from simnmt.nmt import decoder_timing
from simnmt.nmt.decoder_timing import JoiningTime, OutputStages
from simnmt.nmt.devices import has_bfloat16, torch_device
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.linear_layers import has_half_weights
from simnmt.nmt.models import LoadedModel, TranslationModel, load_model
from simnmt.nmt.pretrained_tokenizer import load_pretrained
from simnmt.nmt.slot_decoder import BatchedDecoder, Mark, SlotDecoder, decode_batch
from simnmt.nmt.step_model import check_lengths, pad
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary

HALF_WEIGHTS = "float16_weights"
"""Weights in float16, activations in float32: the fastest on an x86 CPU at small batches."""
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, HALF_WEIGHTS: torch.float32}

_Mark = TypeVar("_Mark")
_Result = TypeVar("_Result")


class _OutputOptions(TypedDict):
    """Options of the output layer, as searches take them."""

    fused: bool
    vocabulary: RestrictedVocabulary | None


class TorchEngine:
    """An engine that runs forced lengths through `decode_batch` and marks the end of the encoder and each step of the model.

    On the CPU a mark reads the performance counter; on a GPU it is an event on the stream, read after one synchronisation at
    the end, so that measuring does not stall the GPU. `threads` is torch's setting for the whole process, made again before
    each run, so that several engines of one process keep their own. Torch's inter-operator threads are left alone: torch fixes
    their number at the first parallel work, and nothing here uses them.
    """

    def __init__(self, loaded: LoadedModel, threads: int | None, compute_type: str, request: EngineRequest) -> None:
        device = torch_device(request.device)
        bundle = None
        if request.vocabulary is not None:
            # Before the weights change their type: the bundle has the fingerprint of the weights in the file.
            from simnmt.nmt.vocabulary.active_columns import load_vocabulary, with_measured_cost

            direction, dtype = request.direction, _TYPES[compute_type]
            bundle = load_vocabulary(request.vocabulary, loaded.model, direction=direction, device=device, dtype=dtype)
        self._model: TranslationModel | None = in_type(loaded.model, device, compute_type)
        self._architecture, self._device, self._threads, self._seed = loaded.architecture, device, threads, request.seed
        part = None if bundle is None else with_measured_cost(bundle, loaded.model)
        self._output = _OutputOptions(fused=request.fused, vocabulary=part)
        self.account = EngineAccount.of(
            loaded,
            backend="torch",
            compute_type=compute_type,
            device=str(device),
            device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            threads=threads,
            versions=_versions(loaded, device),
            fused=request.fused,
            vocabulary=None if part is None else "clustered" if part.clusters else "candidates",
        )

    @classmethod
    def load(cls, request: EngineRequest) -> TorchEngine:
        """Load an engine; see `load_engine`, which has checked the device's name."""
        compute_type = request.supported_type("torch", supported_types(request.device))
        threads = request.threads
        if request.device == "cpu":
            threads = threads or torch.get_num_threads()

        def load() -> TorchEngine:
            if threads is not None and request.vocabulary is not None:
                torch.set_num_threads(threads)  # the cost of products is measured with them
            if request.languages is None:
                loaded = load_model(request.model, seed=request.seed)
            else:
                loaded, _ = load_pretrained(Path(request.model), request.languages)
            return cls(loaded, threads, compute_type, request)

        return within_memory(request.device, load)

    def run(self, work: Work) -> Timing:
        """See `Engine`."""

        def timed(model: TranslationModel) -> Timing:
            check_lengths(model.max_positions, work.src_len, work.tgt_len)
            src, lengths = torch.tensor(self._sources(work)), torch.full((work.batch,), work.src_len)
            return (_time_on_gpu if self._device.type == "cuda" else _time_on_cpu)(model, src, lengths, work, self._output)

        return self._measure(timed)

    def sentence_decoder(self, batching: Batching, beam: int) -> BatchedDecoder:
        """Return a decoder of sentences in batches that are refilled as `batching` says. Raises `NmtError` once closed."""

        def make(model: TranslationModel) -> BatchedDecoder:
            return BatchedDecoder(SlotDecoder(model, beam=beam, capacity=batching.size, **self._output), batching)

        return self._measure(make)

    def joining_s(self, joining: int, others: int, *, src_len: int, beam: int, rounds: int) -> JoiningTime:
        """Return the median seconds in which encoded sentences join others in the decoder, and leave it (FNI-10).

        See `time_joining`. Raises `OutOfMemory`, after which the engine is still usable.
        """
        sources = self._sources(Work(src_len, 1, joining + others, beam))
        timed, clock = decoder_timing.time_joining, self._now_s
        return self._measure(
            lambda model: timed(model, sources, joining, beam=beam, rounds=rounds, clock=clock, **self._output)
        )

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the alternating steps of both works; see `time_steps_in_turn`. Raises the errors of `run`."""
        steps, beam, timed = first.tgt_len, first.beam, decoder_timing.time_steps_in_turn

        def measure(model: TranslationModel) -> list[tuple[float, float]]:
            check_lengths(model.max_positions, max(first.src_len, second.src_len), steps)
            both = self._sources(first), self._sources(second)
            return timed(model, *both, steps=steps, beam=beam, clock=self._now_s, **self._output)

        return self._measure(measure)

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of encoding sentences of these lengths together, as in `run`. Raises as `joining_s`."""
        sources = [self._sources(Work(src_len, 1))[0] for src_len in src_lens]

        def timed(model: TranslationModel) -> float:
            src, lengths = pad(sources, model.pad_token)
            begin_s = self._now_s()
            SlotDecoder(model, capacity=len(sources)).encode_padded(src.to(model.device), lengths.to(model.device))
            return self._now_s() - begin_s

        return self._measure(timed)

    def output_stages_s(
        self, batch: int, beam: int, *, src_len: int = decoder_timing.SRC_LEN, rounds: int = decoder_timing.ROUNDS
    ) -> OutputStages:
        """Return the seconds of the stages of one decode step, both plain and fused. Raises as `joining_s`."""
        timed, clock = decoder_timing.output_stages_s, self._now_s
        return self._measure(lambda model: timed(model, batch, beam, src_len=src_len, rounds=rounds, clock=clock))

    def close(self) -> None:
        """See `Engine`; no run afterwards."""
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

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

    def _sources(self, work: Work) -> list[list[int]]:
        return random_sources(work, self._architecture, self._seed)


def _time_on_cpu(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions) -> Timing:
    marks: list[float] = []
    start = time.perf_counter()
    _decode(model, src, lengths, work, output, lambda: marks.append(time.perf_counter()))
    total = time.perf_counter() - start
    encoded, *marks = marks
    return Timing(total, encoded - start, tuple(after - before for before, after in _pairs(marks)))


def _time_on_gpu(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions) -> Timing:
    device = model.device
    events = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2 + 2 * work.tgt_len)
    ]
    unused = iter(events)
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        start = time.perf_counter()
        next(unused).record()
        _decode(model, src.to(device), lengths.to(device), work, output, lambda: next(unused).record())
        torch.cuda.synchronize()
        total = time.perf_counter() - start
    begin, encoded, *marks = events
    encode_s = begin.elapsed_time(encoded) / 1e3
    return Timing(total, encode_s, tuple(before.elapsed_time(after) / 1e3 for before, after in _pairs(marks)))


def _pairs(marks: list[_Mark]) -> Iterator[tuple[_Mark, _Mark]]:
    """Yield begin and end of the model's part of each step."""
    return zip(marks[::2], marks[1::2], strict=True)


def _decode(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions, mark: Mark) -> None:
    decode_batch(model, src, lengths, beam=work.beam, forced_len=work.tgt_len, scored=False, mark=mark, **output)


def in_type(model: TranslationModel, device: torch.device, compute_type: str) -> TranslationModel:
    """Return the model moved to a device, with weights of a compute type that is supported there."""
    model = model.to(device=device, dtype=_TYPES[compute_type])
    if compute_type == HALF_WEIGHTS:
        model.halve()
    return model


def supported_types(device: str) -> list[str]:
    """Return the compute types that torch supports on a device, the default first. Raises `NmtError` for a missing device."""
    where = torch_device(device)
    if where.type == "cuda":
        # Older GPUs emulate bfloat16, which torch's `is_bf16_supported` counts as support.
        return ["float32", "float16", *(["bfloat16"] if torch.cuda.get_device_capability(where) >= (8, 0) else [])]
    return ["float32", *(["bfloat16"] if has_bfloat16() else []), *([HALF_WEIGHTS] if has_half_weights() else [])]


def _versions(loaded: LoadedModel, device: torch.device) -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    if loaded.architecture.kind == "transformer":
        versions["transformers"] = version("transformers")
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return versions
