"""The torch engine: times a step model on the CPU or on a CUDA device. The CUDA path has not been measured yet."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TypedDict, TypeVar

import torch
from torch import Tensor

from simnmt.nmt.decoder_timing import (
    ROUNDS,
    SRC_LEN,
    JoiningTime,
    OutputStages,
    output_stages_s,
    time_joining,
    time_steps_in_turn,
)
from simnmt.nmt.devices import cpu_name, has_bfloat16, torch_device
from simnmt.nmt.engine import EngineAccount, EngineRequest, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.linear_layers import has_half_weights
from simnmt.nmt.models import LoadedModel, TranslationModel, load_model
from simnmt.nmt.slot_decoder import Mark, SlotDecoder, beam, greedy
from simnmt.nmt.step_model import check_lengths, pad
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary

HALF_WEIGHTS = "float16_weights"
"""Weights in float16, activations in float32: the fastest on an x86 CPU at small batches."""
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, HALF_WEIGHTS: torch.float32}


_Mark = TypeVar("_Mark")


class _OutputOptions(TypedDict):
    """The output layer, as searches are told of it."""

    fused: bool
    vocabulary: RestrictedVocabulary | None


class TorchEngine:
    """Runs forced lengths through our own search and marks the end of the encoder, and begin and end of the model's steps.

    On the CPU the marks are the performance counter; on a GPU they are events on its stream, read after one
    synchronisation at the end, so that measuring does not stall it. `threads` is torch's setting for the whole process,
    made again before each run, so that engines of one process take turns with their own. Its inter-operator threads are
    left alone: torch fixes them at the first parallel work, and nothing here uses them.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        device: torch.device,
        threads: int | None,
        compute_type: str,
        request: EngineRequest,
    ) -> None:
        bundle, fused = None, request.fused
        if request.vocabulary is not None:
            # Before the weights become others in another type: the bundle knows them as they lie in the file.
            from simnmt.nmt.vocabulary.active_columns import load_vocabulary, with_measured_cost

            direction, dtype = request.direction, _TYPES[compute_type]
            bundle = load_vocabulary(request.vocabulary, loaded.model, direction=direction, device=device, dtype=dtype)
        self._model: TranslationModel | None = loaded.model.to(device=device, dtype=_TYPES[compute_type])
        if compute_type == HALF_WEIGHTS:
            loaded.model.halve()
        self._architecture, self._device, self._threads, self._seed = loaded.architecture, device, threads, request.seed
        part = None if bundle is None else with_measured_cost(bundle, loaded.model)
        self._output = _OutputOptions(fused=fused, vocabulary=part)
        self.account = EngineAccount(
            model=loaded.name,
            architecture=loaded.architecture.model_dump(mode="json"),
            weights=loaded.weights,
            vocab=loaded.architecture.tgt_vocab,
            backend="torch",
            compute_type=compute_type,
            device=str(device),
            device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            threads=threads,
            versions=_versions(loaded, device),
            fused=fused,
            vocabulary=None if part is None else "clustered" if part.clusters else "candidates",
        )

    def run(self, work: Work) -> Timing:
        """See `Engine`."""
        model = self._ready()
        check_lengths(model.max_positions, work.src_len, work.tgt_len)
        timed = _time_on_gpu if self._device.type == "cuda" else _time_on_cpu
        return within_memory(self.account.device, lambda: timed(model, *self._batch(work), work, self._output))

    def joining_s(self, joining: int, others: int, *, src_len: int, beam: int, rounds: int) -> JoiningTime:
        """Seconds that encoded sentences take to join others in the decoder, and to leave it, the usual of `rounds` (FNI-10).

        See `time_joining`. Raises `OutOfMemory`, then still usable.
        """
        model, both = self._ready(), joining + others
        sources = random_sources(Work(src_len, 1, both, beam), self._architecture, self._seed)

        def timed() -> JoiningTime:
            return time_joining(model, sources, joining, beam=beam, rounds=rounds, clock=self._now_s, **self._output)

        return within_memory(self.account.device, timed)

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the steps of both works, taken in turn (`time_steps_in_turn`). Raises as `run`."""
        model = self._ready()
        check_lengths(model.max_positions, max(first.src_len, second.src_len), first.tgt_len)
        both = [random_sources(work, self._architecture, self._seed) for work in (first, second)]

        def timed() -> list[tuple[float, float]]:
            return time_steps_in_turn(model, *both, steps=first.tgt_len, beam=first.beam, clock=self._now_s, **self._output)

        return within_memory(self.account.device, timed)

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Seconds of encoding sentences of these lengths together, as `run` tells them. Raises as `joining_s`."""
        model = self._ready()
        sources = [random_sources(Work(src_len, 1), self._architecture, self._seed)[0] for src_len in src_lens]
        src, lengths = pad(sources, model.pad_token)

        def timed() -> float:
            begin_s = self._now_s()
            SlotDecoder(model, capacity=len(sources)).encode_padded(src.to(model.device), lengths.to(model.device))
            return self._now_s() - begin_s

        return within_memory(self.account.device, timed)

    def output_stages_s(self, batch: int, beam: int, *, src_len: int = SRC_LEN, rounds: int = ROUNDS) -> OutputStages:
        """Seconds of the stages of one decode step, fused and not, whichever of both this engine is. Raises as `joining_s`."""
        model = self._ready()

        def timed() -> OutputStages:
            return output_stages_s(model, batch, beam, src_len=src_len, rounds=rounds, clock=self._now_s)

        return within_memory(self.account.device, timed)

    def close(self) -> None:
        """See `Engine`; no run afterwards."""
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _ready(self) -> TranslationModel:
        """The model, with our threads set. Raises `NmtError` once closed."""
        if self._model is None:
            raise NmtError("this engine is closed", remedy="load it again")
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        return self._model

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _batch(self, work: Work) -> tuple[Tensor, Tensor]:
        src = torch.tensor(random_sources(work, self._architecture, self._seed))
        return src, torch.full((work.batch,), work.src_len)


def load_torch_engine(request: EngineRequest) -> TorchEngine:
    """See `load_engine`, which has checked the device's name."""
    place, threads = torch_device(request.device), request.threads
    compute_type = request.supported_type("torch", supported_types(request.device))
    if place.type == "cpu":
        threads = threads or torch.get_num_threads()

    def load() -> TorchEngine:
        if threads is not None and request.vocabulary is not None:
            torch.set_num_threads(threads)  # what products cost is measured with them
        return TorchEngine(load_model(request.model, seed=request.seed), place, threads, compute_type, request)

    return within_memory(request.device, load)


def _time_on_cpu(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions) -> Timing:
    marks: list[float] = []
    start = time.perf_counter()
    _search(model, src, lengths, work, output, lambda: marks.append(time.perf_counter()))
    total = time.perf_counter() - start
    encoded, *marks = marks
    return Timing(total, encoded - start, tuple(after - before for before, after in _pairs(marks)))


def _time_on_gpu(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions) -> Timing:
    device = model.device
    events = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2 + 2 * work.tgt_len)
    ]
    pressed = iter(events)
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        start = time.perf_counter()
        next(pressed).record()
        _search(model, src.to(device), lengths.to(device), work, output, lambda: next(pressed).record())
        torch.cuda.synchronize()
        total = time.perf_counter() - start
    begin, encoded, *marks = events
    encode_s = begin.elapsed_time(encoded) / 1e3
    return Timing(total, encode_s, tuple(before.elapsed_time(after) / 1e3 for before, after in _pairs(marks)))


def _pairs(marks: list[_Mark]) -> Iterator[tuple[_Mark, _Mark]]:
    """Begin and end of each step; what lies between two steps is the search's."""
    return zip(marks[::2], marks[1::2], strict=True)


def _search(model: TranslationModel, src: Tensor, lengths: Tensor, work: Work, output: _OutputOptions, mark: Mark) -> None:
    if work.beam == 1:
        greedy(model, src, lengths, forced_len=work.tgt_len, scored=False, mark=mark, **output)
    else:
        beam(model, src, lengths, beam=work.beam, forced_len=work.tgt_len, mark=mark, **output)


def supported_types(device: str) -> list[str]:
    """Compute types that the engine takes on a device, the default first. Raises `NmtError` where there is no such device."""
    if torch_device(device).type == "cuda":
        return ["float32", "float16", *(["bfloat16"] if torch.cuda.is_bf16_supported() else [])]
    return ["float32", *(["bfloat16"] if has_bfloat16() else []), *([HALF_WEIGHTS] if has_half_weights() else [])]


def _versions(loaded: LoadedModel, device: torch.device) -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    if loaded.architecture.kind == "transformer":
        versions["transformers"] = version("transformers")
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return versions
