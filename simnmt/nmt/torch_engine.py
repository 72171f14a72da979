"""The torch engine: times a step model on the CPU or on a CUDA device. The CUDA path has not been measured yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from simnmt.base.compile import cpu_name
from simnmt.batching import Batching, mini
from simnmt.batching.slots import DEFAULT_CHUNK, SlotLimits
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.devices import has_bfloat16, torch_device
from simnmt.nmt.engine import EngineAccount, EngineRequest, ServingEngine, Timing, Work, random_sources
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.llama_model import LlamaModel
from simnmt.nmt.models import (
    AnyModel,
    Loaded,
    ModelT,
    TranslationModel,
    is_llama,
    load_any_model,
    load_pretrained,
    with_encoder,
)
from simnmt.nmt.output_layer import BannedTokens, FusedOutput, Laps, Limit, Output, PlainOutput
from simnmt.nmt.pretrained_config import model_path, read_pretrained_architecture
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.step_model import StepModel, check_lengths, has_half_weights

HALF_WEIGHTS = "float16_weights"
"""Weights in float16, activations in float32: the fastest on an x86 CPU at small batches."""
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, HALF_WEIGHTS: torch.float32}

EARLY_TOKENS, GUEST_TOKENS, LATE_TOKENS = 6, 4, 5
"""Forced lengths: of the sentence that joins one step before the guests, of the guests, and of those that join after them."""

Clock = Callable[[], float]
Timer = Callable[[], dict[str, float]]
"""Runs an experiment once and returns its seconds by name; callers repeat it in rounds."""
_Result = TypeVar("_Result")
_Model = TypeVar("_Model", bound=AnyModel)


class ModelEngine(Generic[ModelT]):
    """A model in torch with its account.

    `threads` is torch's setting for the whole process, made again before each run, so that several engines of one process keep
    their own. Torch's inter-operator threads are left alone: torch fixes their number at the first parallel work, and nothing
    here uses them. Every method raises `OutOfMemory`, after which the engine is still usable.
    """

    takes: ClassVar[frozenset[str]] = frozenset(("fused", "languages"))

    def __init__(self, loaded: Loaded[ModelT], threads: int | None, request: EngineRequest) -> None:
        device, compute_type = torch_device(request.device), request.compute_type or "float32"
        self._model: ModelT | None = in_type(loaded.model, device, compute_type)
        self._architecture, self._device, self._threads, self._seed = loaded.architecture, device, threads, request.seed
        self._output = Output(request.fused)
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
        )

    @classmethod
    def load(cls, request: EngineRequest) -> ServingEngine:
        """Return the engine of a request: a `SlotEngine` of a decoder-only model, else a `TorchEngine`."""
        threads = request.threads or torch.get_num_threads() if request.device == "cpu" else None
        if threads is not None:
            torch.set_num_threads(threads)  # reading weights is parallel too

        def load() -> ServingEngine:
            if request.languages is not None and read_pretrained_architecture(model_path(request.model)).kind != "llama":
                loaded, _ = load_pretrained(Path(request.model), request.languages)
                return TorchEngine(loaded, threads, request)
            any_loaded = load_any_model(request.model, seed=request.seed)
            if is_llama(any_loaded):
                return SlotEngine(any_loaded, threads, request)
            return TorchEngine(with_encoder(any_loaded), threads, request)

        return within_memory(request.device, load)

    @staticmethod
    def supported_types(device: str) -> list[str]:
        where = torch_device(device)
        if where.type == "cuda":
            # Older GPUs emulate bfloat16, which torch's `is_bf16_supported` counts as support.
            return ["float32", "float16", *(["bfloat16"] if torch.cuda.get_device_capability(where) >= (8, 0) else [])]
        return ["float32", *(["bfloat16"] if has_bfloat16() else []), *([HALF_WEIGHTS] if has_half_weights() else [])]

    def close(self) -> None:
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _measure(self, do: Callable[[ModelT], _Result]) -> _Result:
        """Return the result of a measurement of the model with the engine's threads. Raises `NmtError` once closed."""
        model = self._model
        if model is None:
            raise NmtError("this engine is closed", remedy="load it again")
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
            return within_memory(self.account.device, lambda: do(model))

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _sources(self, work: Work) -> list[list[int]]:
        return random_sources(work, self._architecture, self._seed)


class TorchEngine(ModelEngine[TranslationModel]):
    """An engine that runs forced lengths through a `Decoder`, and marks the end of the encoder and each step of the model."""

    def run(self, work: Work) -> Timing:
        def timed(model: TranslationModel) -> Timing:
            check_lengths(model.max_positions, work.src_len, work.tgt_len)
            requests = [DecodeRequest(source, work.tgt_len) for source in self._sources(work)]
            begin_s = self._now_s()
            decoder, step_s = self._timed_decoder(work.batch, work.beam)
            encode_s = self._now_s()
            encoded = decoder.encode(requests)
            encode_s = self._now_s() - encode_s
            decoder.join(encoded, range(work.batch))
            steps_s = [step_s() for _ in range(work.tgt_len)]
            return Timing(self._now_s() - begin_s, encode_s, tuple(steps_s))

        return self._measure(timed)

    def sentence_decoder(self, batching: Batching | SlotLimits, beam: int, *, scored: bool = False) -> Decoder:
        if isinstance(batching, SlotLimits):
            raise NmtError("slots are for decoder-only models", remedy="give mini, maxi or top-up")
        return self._measure(lambda model: Decoder(model, batching, Search(beam, scored), self._output))

    def joining_timer(self, joining: int, others: int, *, src_len: int, beam: int) -> Timer:
        """Return a timer of `joining` encoded sentences as they join others in one step, and leave before them in one step.

        `join_s` is the time of joining, `leave_s` the time after the model's part in the step after which they leave, less the
        mean of the two steps before it: below 0 if noise is larger than the cost (FNI-10). One of the others joins one step
        earlier, so that positions differ, the rest later, so that the last slots move into the holes.
        """
        sources = self._sources(Work(src_len, 1, joining + others, beam))
        lens = [*[GUEST_TOKENS] * joining, EARLY_TOKENS, *[LATE_TOKENS] * len(sources)]
        decoder, step_s = self._timed_decoder(len(sources), beam)
        requests = [DecodeRequest(*pair) for pair in zip(sources, lens, strict=False)]
        encoded = self._measure(lambda _: decoder.encode(requests))

        def join(first: int, last: int) -> None:
            decoder.join(encoded[first:last], range(first, min(last, len(encoded))))

        def beside_s() -> float:
            """Take a step and return the seconds after the model's part of it."""
            begin_s = self._now_s()
            model_s = step_s()
            return self._now_s() - begin_s - model_s

        def once() -> dict[str, float]:
            join(joining, joining + 1)
            step_s()
            begin_s = self._now_s()
            join(0, joining)
            join_s = self._now_s() - begin_s
            join(joining + 1, len(sources))
            step_s()
            between_s = (beside_s() + beside_s()) / 2.0
            leave_s = beside_s() - between_s
            while decoder.active:
                step_s()
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
            (_, first_s), (_, second_s) = timed
            pairs = []
            for position in range(first.tgt_len):
                if position % 2:
                    pairs.append((first_s(), second_s()))
                else:
                    took_s = second_s()
                    pairs.append((first_s(), took_s))
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

    def _timed_decoder(self, size: int, beam: int) -> tuple[Decoder, Callable[[], float]]:
        """Return a decoder, and a function that takes a step of it and returns the seconds of the model's part of the step."""
        end_s = 0.0

        def note(*_: object) -> None:
            nonlocal end_s
            end_s = self._now_s()

        decoder = self._measure(lambda model: Decoder(model, mini(size), Search(beam), self._output, observer=note))

        def step_s() -> float:
            begin_s = self._now_s()
            decoder.step()
            return end_s - begin_s

        return decoder, step_s


class SlotEngine(ModelEngine[LlamaModel]):
    """An engine of a decoder-only model, whose prompts are read and continued in slots."""

    def __init__(self, loaded: Loaded[LlamaModel], threads: int | None, request: EngineRequest) -> None:
        if request.fused:
            raise NmtError("no fused output layer of a decoder-only model", remedy="leave fused out")
        super().__init__(loaded, threads, request)

    def run(self, work: Work) -> Timing:
        """See `Engine`; `encode_s` is the time of reading the prompts, which gives the first tokens."""
        decoder = self.sentence_decoder(SlotLimits(work.batch, work.batch * work.src_len), work.beam)
        for key, source in enumerate(self._sources(work)):
            decoder.arrive(key, DecodeRequest(source, work.tgt_len))

        def timed(_: LlamaModel) -> Timing:
            moments_s = [self._now_s()]
            while decoder.busy:
                decoder.act()
                moments_s.append(self._now_s())
            begin_s, admitted_s, read_s, *ends_s = moments_s
            steps_s = tuple(end_s - before_s for before_s, end_s in pairwise([read_s, *ends_s]))
            return Timing(moments_s[-1] - begin_s, read_s - admitted_s, steps_s)

        return self._measure(timed)

    def sentence_decoder(self, batching: Batching | SlotLimits, beam: int, *, scored: bool = False) -> SlotDecoder:
        if scored:
            raise NmtError("a decoder-only model computes no log-probabilities", remedy="choose another signal of the policy")
        if isinstance(batching, Batching):
            if batching.size > 1:
                raise NmtError("a decoder-only model is batched in slots", remedy="give --batching slots:N")
            batching = SlotLimits(1, DEFAULT_CHUNK)
        limits = batching
        if beam > 1:
            raise NmtError(f"a beam of {beam}, where a decoder-only model decodes greedily", remedy="leave the beam out")
        return self._measure(lambda model: SlotDecoder(model, limits))


def in_type(model: _Model, device: torch.device, compute_type: str) -> _Model:
    """Return the model moved to a device, with weights of a compute type that is supported there."""
    model.to(device=device, dtype=_TYPES[compute_type])
    if compute_type == HALF_WEIGHTS:
        model.halve()
    return model


STAGES = ("body", "product", "bias", "softmax", "search", "fused_product", "fused")
"""Stages of a decode step of all rows, without the time between steps: `product` of all columns at once, without the bias;
`bias`, what a product with bias takes more, since torch adds within the product where it can; `softmax`, 0 if none is computed;
`search` of the best tokens of each row and among the rows of a beam; `fused_product` of the fused layer, block by block;
`fused`: bias, softmax and search in one pass."""
SRC_LEN, MOST_CALLS = 25, 40
"""Source tokens; steps that a timer may take."""


@torch.inference_mode()
def stage_timer(model: StepModel, batch: int, beam: int, *, src_len: int = SRC_LEN, clock: Clock = time.perf_counter) -> Timer:
    """Return a timer of `STAGES` in steps of `batch` sentences of `src_len` source tokens, which are forced to go on.

    Each call is a step, of which there are at most `MOST_CALLS`. A greedy search computes no probabilities, as in the engine.
    Raises `NmtError` for lengths beyond the model's positions; errors of torch for too little memory pass through.
    """
    check_lengths(model.max_positions, src_len, MOST_CALLS)
    best = beam if beam > 1 else 0
    slots = model.slots(batch * beam)
    src = torch.full((batch, src_len), model.eos_token, device=model.device)
    slots.join(model.encode(src, torch.full((batch,), src_len, device=model.device)), range(batch), [src_len] * batch, beam)
    banned = BannedTokens(model)
    banned.update([Limit(MOST_CALLS, True)] * batch, beam)
    laps = Laps(clock)
    plain, fused = PlainOutput(model, banned, laps), FusedOutput(model, banned, laps)
    tokens = torch.full((batch * beam,), model.eos_token, device=model.device)
    scores = torch.zeros((batch, beam), device=model.device)

    def search(layer: PlainOutput, hidden: Tensor) -> None:
        projected = layer.project(hidden, best)  # released at the end, as in the decoder, which never holds two
        if beam > 1:
            layer.largest_sums(projected, scores, 2 * beam)
        else:
            layer.likeliest(projected, scored=False)

    @torch.inference_mode()
    def once() -> dict[str, float]:
        laps("between steps")
        laps.seconds.clear()
        hidden = slots.body(tokens)
        laps("body")
        next(model.products(hidden))
        laps("product")
        search(plain, hidden)
        laps("between layers")
        search(fused, hidden)
        taken = laps.seconds
        return {stage: taken["project"] - taken["product"] if stage == "bias" else taken[stage] for stage in STAGES}

    return once
