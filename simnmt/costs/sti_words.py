"""What a profile says of a streamed model: reads by bits, layers by width and length, importance."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.costs.sti_block import StiBlock, StiDecoder, StiIo

Facts = list[tuple[str, str]]
_FIRST = 6
"""Shards named of the importance order."""


def sti_facts(block: StiBlock) -> Facts:
    """(what, how much)."""
    own = block.geometry
    said = [f"{block.kind}: {block.model}, {own.layers} layers of {own.heads} shards", f"{own.width} x {own.ffn}"]
    said += [] if block.threads is None else [f"{block.threads} {'thread' if block.threads == 1 else 'threads'}"]
    said += [] if block.store_bytes is None else [f"{block.store_bytes / 1e6:.4g} MB of shards"]
    said += [] if block.resident_bytes is None else [f"{block.resident_bytes / 1e6:.4g} MB that are in none"]
    return [
        ("sti", ", ".join(said)),
        *_reads(block),
        *_layers(block),
        *([] if block.decoder is None else _decoder(block.decoder)),
        *_importance(block),
        *([("sti note", "; ".join(block.notes))] if block.notes else []),
    ]


def _reads(block: StiBlock) -> Facts:
    own = block.io
    fit = f"{1e3 * own.s_fixed:.4g} ms + bytes / {own.bytes_per_s / 1e6:.4g} MB/s"
    fit += "" if own.r2 is None else f", R2 {own.r2:.4f}"
    fit += ", cold" if own.cold else ", not known to be cold"
    fit += "" if own.paced_bytes_per_s is None else f", paced to {own.paced_bytes_per_s / 1e6:.4g} MB/s"
    return [("sti read", f"{_by_bits(own)}; {fit}")]


def _by_bits(own: StiIo | StiDecoder) -> str:
    """`2 bits 1.9 ms, ...`, and which of them a planner takes for slower than they were."""
    said = ", ".join(f"{each.bits} bits {1e3 * each.median_s:.4g} ms" for each in own.reads)
    raised = [
        f"{each.bits} bits {1e3 * own.io_s[each.bits]:.4g} ms" for each in own.reads if own.io_s[each.bits] > each.median_s
    ]
    return said + (f"; planned as {', '.join(raised)}, since more bits never read faster" if raised else "")


def _layers(block: StiBlock) -> Facts:
    own = block.compute
    found = [
        (f"sti layer of {each.length} tokens", f"{_by_width(each.seconds)}{_unpacking(each.unpack_s, each.seconds)}")
        for each in own.lengths
    ]
    error = "unknown" if own.heldout_error is None else f"{100 * own.heldout_error:.3g} % held out"
    if own.slowed_by_reads is not None:
        least, most = min(own.slowed_by_reads), max(own.slowed_by_reads)
        found.append(("sti layer beside reads", f"{least:.4g} to {most:.4g} times as long, by shards"))
    return [*found, ("sti layer error", error + (f" ({own.heldout_how})" if own.heldout_how else ""))]


def _by_width(seconds: Sequence[float]) -> str:
    """Least, middle and greatest width."""
    widths = sorted({1, (1 + len(seconds)) // 2, len(seconds)})
    return ", ".join(f"{1e3 * seconds[m - 1]:.4g} ms with {m} {'shard' if m == 1 else 'shards'}" for m in widths)


def _unpacking(unpack_s: Sequence[float] | None, seconds: Sequence[float]) -> str:
    return "" if unpack_s is None else f"; {100 * unpack_s[-1] / seconds[-1]:.3g} % of all shards' is unpacking"


def _decoder(own: StiDecoder) -> Facts:
    under = f"under {own.src_len} source tokens, {own.tgt_len} out"
    once = "" if own.once_s is None else f"; once for each request {1e3 * own.once_s[-1]:.4g} ms with all shards"
    once += "" if own.output_s is None else f"; choosing a word {1e3 * own.output_s:.4g} ms"
    return [
        ("sti decoder", f"{own.layers} layers; {_by_bits(own)}"),
        ("sti decoder layer", f"{_by_width(own.step_s)} for one token, {under}{once}"),
    ]


def _importance(block: StiBlock) -> Facts:
    own = block.importance
    if own is None:
        return [("sti importance", "not measured: shards count alike")]
    order = own.order
    first = ", ".join(f"{layer}.{piece}" for layer, piece in order[:_FIRST])
    best, (layer, piece) = order[0], order[0]
    gain = own.accuracy[best[0]][best[1]] - own.base_accuracy
    said = f"{own.task}, {own.examples:,} examples, {own.evaluations} evaluations"
    said += f"; all at 2 bits {100 * own.base_accuracy:.1f} %, with shard {layer}.{piece} whole {100 * gain:+.1f} points"
    return [("sti importance", f"{said}; first (layer.slice) {first}")]
