"""Streamed models of round costs: T_io(b) = 0.1 b seconds and 1000 b bytes, as in the requirements' worked examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from simnmt.profile.streaming_block import BITS, DecoderShards, Shard, ShardGeometry, StiCost

LENGTH = 8


def round_cost(
    layers: int = 2,
    comp_s: Sequence[float] = (1 / 3, 2 / 3, 1.0),
    *,
    first: Sequence[Shard] = (),
    a_bit_s: float = 0.1,
    fixed_s: float = 0.0,
    decoder_layers: int = 0,
    step_s: float = 0.1,
) -> StiCost:
    """`first`: what leads the ranking of importance, the rest in layer order; without it nothing is ranked."""
    slices = len(comp_s)
    geometry = ShardGeometry(layers, slices, 4 * slices, 8 * slices)
    reads = {bits: fixed_s + a_bit_s * bits for bits in BITS}
    sizes = {bits: 1000 * bits for bits in BITS}
    decoder = None
    if decoder_layers:
        crossed = ShardGeometry(decoder_layers, slices, 4 * slices, 8 * slices, cross_attention=True)
        decoder = DecoderShards(crossed, reads, sizes, (step_s,) * slices)
    every = [(layer, piece) for layer in range(layers + decoder_layers) for piece in range(slices)]
    ranked = (*first, *(shard for shard in every if shard not in first)) if first else None
    return StiCost(geometry, reads, {LENGTH: tuple(comp_s)}, sizes, decoder, ranked)


@st.composite
def costs(draw: st.DrawFn, beside: bool = False) -> StiCost:
    """Small models of any proportion of reading to computing, ranked in any order.

    `beside`: some with an embedding and a head, and with computing that is slowed by reads.
    """
    layers, slices = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    comp = sorted(draw(st.lists(st.floats(0.01, 2.0), min_size=slices, max_size=slices)))
    order = draw(st.permutations([(layer, piece) for layer in range(layers) for piece in range(slices)]))
    cost = round_cost(
        layers, comp, first=order, a_bit_s=draw(st.floats(0.001, 0.3)), fixed_s=draw(st.sampled_from([0.0, 0.01, 0.1]))
    )
    if not beside:
        return cost
    embed_s, head_s = (draw(st.sampled_from([0.0, 0.05, 0.5])) for _ in range(2))
    slowed = draw(st.just(()) | st.tuples(*[st.sampled_from([1.0, 1.1, 2.0])] * slices))
    return replace(cost, embed_s={LENGTH: embed_s}, head_s=head_s, slowed=slowed)
