"""From a bundle's file to what decoders are handed as `vocabulary`."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from torch import nn

from simnmt.kernels.projection_timing import measure_projection
from simnmt.nmt.errors import NmtError
from simnmt.nmt.half_weights import HalfLinear
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.candidates_in_use import listed
from simnmt.nmt.vocabulary.clustered import clustered
from simnmt.nmt.vocabulary.sub_matrix_cache import SubMatrixCache
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary


def load_vocabulary(
    path: str | os.PathLike[str],
    model: StepModel,
    *,
    direction: str | None = None,
    cache_mb: float = 0.0,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> RestrictedVocabulary:
    """The clusters or candidate lists of a bundle that was built with this model, whose weights are as in its file.

    `direction`: which clusters of several. `cache_mb`: megabytes that copies of repeated sub-matrices may take, on the CPU,
    where a cost says that one pays (`with_measured_cost`). `device`, `dtype`: where the model will be and of what type, by
    default as it is; centroids are of 2 bytes a number where the model is (FVP-18). Raises `NmtError` for a file that is no
    bundle or damaged, of another model or vocabulary, and for a direction that is not in it.
    """
    device, dtype = device or model.device, dtype or model.weight.dtype
    if not 0 <= cache_mb < float("inf"):
        raise NmtError(f"a cache of {cache_mb:g} MB", remedy="give 0 or more")
    if cache_mb and device.type != "cpu":
        raise NmtError(f"copies of columns on {device}, where none was found to pay", remedy="keep them on the CPU alone")
    kind = read_bundle(path).kind
    if kind == "clusters":
        from simnmt.nmt.vocabulary.cluster_bundle import load_clusters

        clusters = load_clusters(path, model).direction(direction)
        vocabulary = clustered(clusters, device=device, dtype=dtype if dtype.itemsize == 2 else None)
    elif direction is not None:
        raise NmtError("candidate lists have no directions", path=path, remedy="leave --direction out")
    else:
        from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

        vocabulary = listed(CandidateLists.load(path, model))
    vocabulary.check(model)
    return replace(vocabulary, cache=SubMatrixCache(int(cache_mb * 1e6)) if cache_mb else None)


def with_measured_cost(vocabulary: RestrictedVocabulary, model: StepModel) -> RestrictedVocabulary:
    """The same, with products made as a measurement of this model's layer, here and now, says is fastest: a second's work.

    Two measurements may differ on what is nearly as fast, and then products by rounding: without one every run is the same. On
    CUDA the same as it is: all ways are torch's own there, and none was measured.
    """
    if model.device.type != "cpu":
        return vocabulary
    weight, bias = model.weight.detach(), model.bias
    # Of packed weights the model multiplies all columns by its own product; torch takes the unpacked ones far more slowly.
    packed = isinstance(model, nn.Module) and any(isinstance(layer, HalfLinear) for layer in model.modules())
    with torch.inference_mode():
        cost = measure_projection(
            weight.shape[1],
            weight=weight,
            bias=None if bias is None else bias.detach().float(),
            clusters=vocabulary.clusters or 1,
            dense=(lambda hidden: next(iter(model.products(hidden)))) if packed else None,
        )
    return replace(vocabulary, cost=cost)
