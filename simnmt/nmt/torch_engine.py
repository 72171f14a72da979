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
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.decoder_timing import Timer, stage_timer
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

EARLY_TOKENS, GUEST_TOKENS, LATE_TOKENS = 6, 4, 5
"""Forced lengths: of the sentence that joins one step before the guests, of the guests, and of those that join after them."""

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
        """Return a timer of `joining` encoded sentences as they join others in one step, and leave before them in one step.

        `join_s` is the time of joining, `leave_s` the time after the model's part in the step after which they leave, less the
        mean of the two steps before it: below 0 if noise is larger than the cost (FNI-10). One of the others joins one step
        earlier, so that positions differ, the rest later, so that the last slots move into the holes.
        """
        sources = self._sources(Work(src_len, 1, joining + others, beam))
        lens = [*[GUEST_TOKENS] * joining, EARLY_TOKENS, *[LATE_TOKENS] * len(sources)]
        decoder, marks = self._timed_decoder(len(sources), beam)
        requests = [DecodeRequest(*pair) for pair in zip(sources, lens, strict=False)]
        encoded = self._measure(lambda _: decoder.encode(requests))

        def join(first: int, last: int) -> None:
            decoder.join(encoded[first:last], range(first, min(last, len(encoded))))

        def beside_s() -> float:
            """Take a step and return the seconds after the model's part of it."""
            decoder.step()
            return self._now_s() - marks[-1]

        def once() -> dict[str, float]:
            join(joining, joining + 1)
            decoder.step()
            begin_s = self._now_s()
            join(0, joining)
            join_s = self._now_s() - begin_s
            join(joining + 1, len(sources))
            decoder.step()
            between_s = (beside_s() + beside_s()) / 2.0
            leave_s = beside_s() - between_s
            while decoder.active:
                decoder.step()
            return {"join_s": join_s, "leave_s": leave_s}

        return lambda: self._measure(lambda _: once())

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Return the seconds of the model's part of each step of both works, which alternate; the first step is left out.

        At every other position the second work goes first. Raises the errors of `run`.
        """

        def measure(model: TranslationModel) -> list[tuple[float, float]]:
            check_lengths(model.max_positions, max(first.src_len, second.src_len), first.tgt_len)
            timed = [self._timed_decoder(work.batch, first.beam) for work in (first, second)]
            for (decoder, _), work in zip(timed, (first, second), strict=True):
                requests = [DecodeRequest(source, first.tgt_len) for source in self._sources(work)]
                decoder.join(decoder.encode(requests), range(work.batch))
            pairs = []
            for position in range(first.tgt_len):
                took_s = [0.0, 0.0]
                for turn in (0, 1) if position % 2 else (1, 0):
                    decoder, marks = timed[turn]
                    decoder.step()
                    took_s[turn] = marks[-1] - marks[-2]
                pairs.append((took_s[0], took_s[1]))
            return pairs[1:]

        return self._measure(measure)

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of encoding sentences of these lengths together, as in `run`."""
        requests = [DecodeRequest(self._sources(Work(src_len, 1))[0]) for src_len in src_lens]

        def timed(model: TranslationModel) -> float:
            decoder, begin_s = Decoder(model, mini(len(requests))), self._now_s()
            decoder.encode(requests)
            return self._now_s() - begin_s

        return self._measure(timed)

    def stage_timer(self, batch: int, beam: int, *, src_len: int) -> Timer:
        """Return a timer of the stages of one decode step, both plain and fused."""
        timer = self._measure(lambda model: stage_timer(model, batch, beam, src_len=src_len, clock=self._now_s))
        return lambda: self._measure(lambda _: timer())

    def close(self) -> None:
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _timed_decoder(self, size: int, beam: int) -> tuple[Decoder, list[float]]:
        """Return a decoder, and the list to which it appends the time before and after the model's part of each step."""
        marks: list[float] = []
        mark = lambda: marks.append(self._now_s())  # noqa: E731
        return self._measure(lambda model: Decoder(model, mini(size), Search(beam), self._output, mark=mark)), marks

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
