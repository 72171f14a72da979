"""The parts of a study, each by itself: uniform submodels, ways under deadlines, buffers, raised shards (STI-22, 24, 27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.calibrate.sti_study.document import METHODS, Part, Point, StudiedDevice, Uniform, Upgraded
from simnmt.calibrate.sti_study.judging import Judge
from simnmt.calibrate.sti_study.planning import PLANNED, Chosen, chosen
from simnmt.calibrate.sti_study.settings import StudySettings
from simnmt.calibrate.sti_study.small_cases import small_cases
from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_cost import Shard, StiCost

LOW = 2
"""Bits of what is not raised."""


@dataclass(frozen=True, slots=True)
class StudyBench:
    """All that parts are measured with."""

    devices: Sequence[tuple[StudiedDevice, StiCost]]
    length: int
    order: tuple[Shard, ...]
    """By importance, best first."""
    judge: Judge
    settings: StudySettings
    say: Callable[[str], None]

    @property
    def layers(self) -> int:
        """Of the whole model."""
        return self.devices[0][1].geometry.layers

    @property
    def slices(self) -> int:
        """Of a whole layer."""
        return self.devices[0][1].geometry.heads

    def measured(self, part: Part) -> Iterator[object]:
        """The entries of one part."""
        measure = {
            "uniform": self._uniform,
            "grid": self._grid,
            "sizes": self._sizes,
            "upgrades": self._upgrades,
            "greedy": self._greedy,
        }[part]
        yield from measure()

    def _uniform(self) -> Iterator[Uniform]:
        """The whole model at each bitwidth; in full with fewer layers, and with fewer slices."""
        depths = sorted({_part_of(self.layers, share) for share in self.settings.depths})
        widths = sorted({_part_of(self.slices, share) for share in self.settings.depths})
        sizes = [(self.layers, self.slices, bits) for bits in BITS]
        sizes += [(depth, self.slices, 32) for depth in depths if depth < self.layers]
        sizes += [(self.layers, width, 32) for width in widths if width < self.slices]
        for layers, slices, bits in sizes:
            self.say(f"uniform: {layers} x {slices}, {bits} bits")
            shards = self._submodel(layers, slices)
            yield Uniform(layers=layers, slices=slices, bits=bits, outcome=self.judge(dict.fromkeys(shards, bits)))

    def _grid(self) -> Iterator[Point]:
        for device, cost in self.devices:
            preloads = sorted({0.0, device.preload_share})
            for share in self.settings.deadline_shares:
                for method in METHODS:
                    for preload in preloads if method in PLANNED else (None,):
                        self.say(f"grid: {device.name}, {100 * share:g} % of the whole computation, {method}")
                        yield self._point(
                            device, chosen(method, cost, self._deadline_s(device, share), preload, self.length), share
                        )

    def _sizes(self) -> Iterator[Point]:
        for device, cost in self._apart():
            for share in self.settings.size_deadlines:
                for preload in self.settings.size_shares:
                    self.say(
                        f"sizes: {device.name}, {100 * share:g} % of the whole computation, buffer of {100 * preload:.2f} %"
                    )
                    yield self._point(device, chosen("STI", cost, self._deadline_s(device, share), preload, self.length), share)

    def _upgrades(self) -> Iterator[Upgraded]:
        settings, to_bits = self.settings, self.settings.raised_to
        for at, (depth, width, part) in enumerate(settings.upgrades):
            layers, slices = _part_of(self.layers, depth), _part_of(self.slices, width)
            shards = self._submodel(layers, slices)
            raised = _part_of(len(shards), part)
            self.say(f"upgrades: {layers} x {slices}, {raised} shards to {to_bits} bits")
            base = dict.fromkeys(shards, LOW)
            by_importance = [shard for shard in self.order if shard in base][:raised]
            drawn = np.random.default_rng((settings.seed, at))
            random = [
                [shards[place] for place in drawn.permutation(len(shards))[:raised]] for _ in range(settings.random_orders)
            ]
            yield Upgraded(
                layers=layers,
                slices=slices,
                raised=raised,
                to_bits=to_bits,
                base=self.judge(base),
                best=self.judge(base | dict.fromkeys(by_importance, to_bits)),
                random=tuple(self.judge(base | dict.fromkeys(own, to_bits)) for own in random),
                same=sum(set(own) == set(by_importance) for own in random),
            )

    def _greedy(self) -> Iterator[object]:
        for device, cost in self._apart():
            self.say(f"greedy: {device.name}")
            yield from small_cases(device, cost, self.length, self.settings)

    def _apart(self) -> list[tuple[StudiedDevice, StiCost]]:
        """Devices whose times differ: where buffers are varied anyway, two that differ by their buffer are one."""
        found: list[tuple[StudiedDevice, StiCost]] = []
        for device, cost in self.devices:
            if all(_times(device) != _times(other) for other, _ in found):
                found.append((device, cost))
        return found

    def _deadline_s(self, device: StudiedDevice, share: float) -> float:
        return share * device.whole_s(self.layers)

    def _submodel(self, layers: int, slices: int) -> list[Shard]:
        """The bottom layers, of each its most important slices."""
        found: list[Shard] = []
        for layer in range(layers):
            own = [shard for shard in self.order if shard[0] == layer][:slices]
            found += sorted(own)
        return found

    def _point(self, device: StudiedDevice, own: Chosen, share: float) -> Point:
        plan = own.plan
        return Point(
            device=device.name,
            method=own.method,
            deadline_share=share,
            deadline_s=plan.deadline_s,
            preload_share=own.preload_share,
            preload_bytes=plan.preload_bytes if own.method in PLANNED else 0,
            layers=plan.layers,
            slices=plan.slices_per_layer,
            bits={bits: count for bits in BITS if (count := sum(each == bits for each in plan.bits.values()))},
            held_bytes=own.held_bytes,
            working_bytes=own.working_bytes,
            load_s=own.load_s,
            comp_s=own.comp_s,
            latency_s=plan.latency_s,
            stall_s=plan.stall_s,
            misses=plan.misses_deadline,
            flagged=plan.short_of_io,
            outcome=self.judge(plan.bits),
        )


def _times(device: StudiedDevice) -> tuple[object, ...]:
    """All that plans depend on but the buffer."""
    return device.io_s, device.comp_s, device.embed_s, device.head_s, device.slowed


def _part_of(whole: int, share: float) -> int:
    """That share of it, at least one."""
    return max(1, round(share * whole))
