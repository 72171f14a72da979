"""Sharding a model: every shard at every fidelity, layer by layer, whole at the end or to be gone on with (STI-05)."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from safetensors import SafetensorError

from simnmt.costs.shard_geometry import BITS
from simnmt.elastic.encoder_weights import EncoderWeights
from simnmt.elastic.errors import StoreError
from simnmt.elastic.shard_layout import check_layout
from simnmt.elastic.store.durable import synced
from simnmt.elastic.store.index_file import BESIDE, INDEX, JOURNAL, RESIDENT, VERSION, Index, StoredFile
from simnmt.elastic.store.layer_records import layer_fit, layer_records
from simnmt.elastic.store.packed import record_size
from simnmt.elastic.store.unfinished import Unfinished
from simnmt.nmt.tensor_files import write_tensors


def write_store(
    weights: EncoderWeights,
    path: str | os.PathLike[str],
    *,
    bits: Sequence[int] = BITS,
    beside: Mapping[str, bytes] | None = None,
    label_names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
    resume: bool = True,
) -> None:
    """Write the shards of a model to the new folder `path`, which is there in the end, whole, or not at all.

    What is done lies in `path` with `.partial` added until then, and an interrupted run goes on from it unless `resume` is
    False. `beside`: small files that are stored along by their names, a tokenizer's; `label_names`: of the model's classes.
    `progress`: layers done, of all. Raises `StoreError` for a layer that cannot be quantised, for an unfinished store of
    another model or of other bits, and where there is no room.
    """
    out = Path(path) if Path(path).name else Path(os.path.realpath(path))
    partial = out.with_name(f"{out.name}.partial")
    bits, geometry = _checked_bits(bits), weights.geometry
    check_layout(geometry)
    with _blamed(out):
        _check_free(out)
    header = {"version": VERSION, "fingerprint": weights.fingerprint, "bits": list(bits)}
    with _blamed(partial), closing(Unfinished(partial, header, resume=resume)) as unfinished:
        _check_room(weights, bits, partial, unfinished.size)
        done, layers = len(unfinished.fits), geometry.layers
        # All of them ahead of the first write: one that cannot be quantised may be the last.
        fits = [layer_fit(geometry, weights.layer(layer), layer) for layer in range(done, layers)]
        unfinished.begin()
        for layer, fit in enumerate(fits, done):
            if progress is not None:
                progress(layer, layers)
            unfinished.add(fit, layer_records(geometry, weights.layer(layer), fit, layer, bits, unfinished.size))
        _write_beside(partial, weights, beside or {})
        names = sorted(str(each.relative_to(partial)) for each in (partial / RESIDENT, *(partial / BESIDE).iterdir()))
        Index(
            fingerprint=weights.fingerprint,
            configuration=weights.configuration.as_json(),
            origin=weights.origin,
            random=weights.random,
            label_names=tuple(label_names),
            bits=bits,
            layers=tuple(unfinished.fits),
            records=tuple(unfinished.records),
            files={name: StoredFile.of(partial / name) for name in names},
        ).write(partial)
        # Else a crash of the box could leave the store's name on files that are not there whole.
        for each in (*(partial / name for name in (*names, INDEX)), partial / BESIDE, partial):
            synced(each)
        partial.replace(out)
        synced(out.parent)
        (out / JOURNAL).unlink()
        if progress is not None:
            progress(layers, layers)


def _write_beside(folder: Path, weights: EncoderWeights, beside: Mapping[str, bytes]) -> None:
    own: dict[int, str] = {}
    shared = {name for name, tensor in weights.resident.items() if own.setdefault(tensor.data_ptr(), name) != name}
    write_tensors(folder / RESIDENT, {n: tensor.clone() if n in shared else tensor for n, tensor in weights.resident.items()})
    (folder / BESIDE).mkdir()
    for name, content in beside.items():
        (folder / BESIDE / name).write_bytes(content)


def _checked_bits(bits: Sequence[int]) -> tuple[int, ...]:
    for each in bits:
        if each not in BITS:
            raise StoreError(f"no shards of {each} bits", remedy=f"choose from {', '.join(map(str, BITS))}")
    if not bits:
        raise StoreError("no bits", remedy=f"choose from {', '.join(map(str, BITS))}")
    return tuple(sorted(set(bits)))


def _check_free(out: Path) -> None:
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise StoreError("is there already", path=out, remedy="remove it, or choose another --out")
    if not out.parent.is_dir():
        raise StoreError("its folder does not exist", path=out, remedy="make it, or choose another --out")


def _check_room(weights: EncoderWeights, bits: Sequence[int], folder: Path, there: int) -> None:
    geometry = weights.geometry
    shards = sum(record_size(geometry.weights_per_shard, each, 0) for each in bits) * geometry.layers * geometry.heads
    needed = shards - there + sum(tensor.nbytes for tensor in weights.resident.values())
    free = shutil.disk_usage(folder).free
    if free < needed:
        remedy = "make room, take fewer --bits, or choose another --out"
        raise StoreError(f"needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} are free", path=folder, remedy=remedy)


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        what, number = (error.strerror or str(error), error.errno) if isinstance(error, OSError) else (str(error), None)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "make room, and give the same command again"
        elif number in (errno.EACCES, errno.EPERM):
            remedy = "mend its rights, or choose another --out"
        else:
            remedy = "choose another --out"
        raise StoreError(f"cannot be written: {what}", path=path, remedy=remedy) from None
