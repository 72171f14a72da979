"""Decode steps of two batches in turn, each pair adjacent in time: what calibration compares on a box that is not calm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary


def steps_in_turn(
    model: StepModel,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    *,
    steps: int,
    beam: int,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    clock: Callable[[], float] = perf_counter,
) -> list[tuple[float, float]]:
    """Seconds of the model's steps under these sources and under those, by position from 1 on: the first step stands apart.

    At every other position the second batch goes first. `clock`: on a GPU one that waits for it. Raises as `SlotDecoder` does.
    """
    marks: list[float] = []
    decoders = []
    for sources in (first, second):
        decoder = SlotDecoder(
            model,
            beam=beam,
            capacity=len(sources),
            fused=fused,
            vocabulary=vocabulary,
            mark=lambda: marks.append(clock()),
        )
        decoder.join(decoder.encode(sources), range(len(sources)), [steps] * len(sources))
        decoders.append(decoder)
    pairs = []
    for position in range(steps):
        took_s = [0.0, 0.0]
        for own in (0, 1) if position % 2 else (1, 0):
            marks.clear()
            decoders[own].step()
            took_s[own] = marks[1] - marks[0]
        pairs.append((took_s[0], took_s[1]))
    return pairs[1:]
