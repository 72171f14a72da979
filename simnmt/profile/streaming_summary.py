"""Summary of a model that is streamed from the disk in shards, and of the reads of a disk, as text for a person."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.profile.disk_block import DiskBlock
from simnmt.profile.streaming_block import StiBlock, StiDecoder, StiIo

Facts = list[tuple[str, str]]
_FIRST = 6
"""Shards of the importance order that are named."""


def sti_facts(block: StiBlock) -> Facts:
    """Return (label, value) lines of a model streamed in shards."""
    geometry = block.geometry
    shards = f"{geometry.layers} layers of {geometry.heads} shards"
    parts = [f"{block.kind}: {block.model}, {shards}", f"{geometry.width} x {geometry.ffn}"]
    parts += [] if block.threads is None else [many(block.threads, "thread")]
    parts += [] if block.store_bytes is None else [f"{block.store_bytes / 1e6:.4g} MB of shards"]
    parts += [] if block.resident_bytes is None else [f"{block.resident_bytes / 1e6:.4g} MB outside the shards"]
    return [
        ("sti", ", ".join(parts)),
        ("sti read", f"{_by_bits(block.io)}; {describe_read_cost(block.io)}{describe_read_conditions(block.io)}"),
        *_layers(block),
        *([] if block.decoder is None else _decoder(block.decoder)),
        *_importance(block),
        *([("sti note", "; ".join(block.notes))] if block.notes else []),
    ]


def _by_bits(block: StiIo | StiDecoder) -> str:
    """Format the reads as `2 bits 1.9 ms, ...`, then the bitwidths whose planned time is above the measured one."""
    medians = ", ".join(f"{read.bits} bits {1e3 * read.median_s:.4g} ms" for read in block.reads)
    raised = [
        f"{read.bits} bits {1e3 * block.io_s[read.bits]:.4g} ms"
        for read in block.reads
        if block.io_s[read.bits] > read.median_s
    ]
    return medians + (f"; planned as {', '.join(raised)}, since more bits never read faster" if raised else "")


def _layers(block: StiBlock) -> Facts:
    compute = block.compute
    lines = []
    for times in compute.lengths:
        unpacking = times.unpack_s and f"; {100 * times.unpack_s[-1] / times.seconds[-1]:.3g} % of all shards' is unpacking"
        lines.append((f"sti layer of {times.length} tokens", f"{_by_width(times.seconds)}{unpacking or ''}"))
    error = "unknown" if compute.heldout_error is None else f"{100 * compute.heldout_error:.3g} % held out"
    if compute.slowed_by_reads is not None:
        least, most = min(compute.slowed_by_reads), max(compute.slowed_by_reads)
        lines.append(("sti layer beside reads", f"{least:.4g} to {most:.4g} times as long, by number of shards"))
    return [*lines, ("sti layer error", error + (f" ({compute.heldout_how})" if compute.heldout_how else ""))]


def _by_width(seconds: Sequence[float]) -> str:
    """Format the times of the least, middle and greatest width."""
    widths = sorted({1, (1 + len(seconds)) // 2, len(seconds)})
    return ", ".join(f"{1e3 * seconds[m - 1]:.4g} ms with {many(m, 'shard')}" for m in widths)


def _decoder(block: StiDecoder) -> Facts:
    under = f"under {block.src_len} source tokens, {block.tgt_len} out"
    once = "" if block.once_s is None else f"; once for each request {1e3 * block.once_s[-1]:.4g} ms with all shards"
    once += "" if block.output_s is None else f"; choosing a word {1e3 * block.output_s:.4g} ms"
    return [
        ("sti decoder", f"{block.layers} layers; {_by_bits(block)}"),
        ("sti decoder layer", f"{_by_width(block.step_s)} for one token, {under}{once}"),
    ]


def _importance(block: StiBlock) -> Facts:
    importance = block.importance
    if importance is None:
        return [("sti importance", "not measured: all shards count the same")]
    order = importance.order
    first = ", ".join(f"{layer}.{piece}" for layer, piece in order[:_FIRST])
    layer, piece = order[0]
    gain = importance.accuracy[layer][piece] - importance.base_accuracy
    evidence = f"{importance.task}, {importance.examples:,} examples, {importance.evaluations} evaluations"
    evidence += f"; all at 2 bits {100 * importance.base_accuracy:.1f} %"
    evidence += f", with shard {layer}.{piece} whole {100 * gain:+.1f} points"
    return [("sti importance", f"{evidence}; first (layer.slice) {first}")]


def describe_read_cost(block: DiskBlock | StiIo) -> str:
    """Describe the seconds of a read as a line over its bytes."""
    return f"{milliseconds(block.s_fixed)} + bytes / {block.bytes_per_s / 1e6:.4g} MB/s"


def describe_read_conditions(block: DiskBlock | StiIo) -> str:
    """Describe how well the line fits, and how the disk was read."""
    fit = "" if block.r2 is None else f", R2 {block.r2:.4f}"
    pace = "" if block.paced_bytes_per_s is None else f", paced to {block.paced_bytes_per_s / 1e6:.4g} MB/s"
    return f"{fit}, {'cold' if block.cold else 'not known to be cold'}{pace}"


def milliseconds(seconds: float) -> str:
    """Format a duration in milliseconds, with four significant digits."""
    return f"{1e3 * seconds:.4g} ms"


def many(count: int, what: str) -> str:
    """Format a number of things, such as `1 thread` or `2 threads`."""
    return f"{count:,} {what}{'s' * (count != 1)}"
