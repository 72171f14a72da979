"""The largest of many, block by block, against looking at each."""

from __future__ import annotations

import pytest
import torch

from simnmt.nmt.output_layer import largest, largest_sums, log_softmax_

WIDTHS = [5, 1_025, 30_000, 32_000, 32_001]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_largest_column_equals_torchs_and_is_the_first_of_equals(columns: int) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn((70, columns), generator=draw)
    assert torch.equal(largest(logits), logits.argmax(dim=1))
    logits[0] = 0.0
    logits[1] = float("-inf")
    logits[1, columns - 1] = 0.0
    logits[2, [columns // 2, columns - 1]] = 9.0
    assert largest(logits)[:3].tolist() == [0, columns - 1, columns // 2]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_largest_sums_are_those_of_all_sums_sorted(columns: int) -> None:
    draw = torch.Generator().manual_seed(2)
    log_probs = torch.randn((14 * 5, columns), generator=draw, dtype=torch.float64).float()
    scores = torch.randn((14, 5), generator=draw)
    scores[0, 1:] = float("-inf")
    count = min(10, columns)
    sums, rows, words = largest_sums(log_probs, scores, count)
    every = (log_probs.view(14, 5, columns) + scores[:, :, None]).flatten(1)
    assert torch.equal(sums, every.sort(dim=1, descending=True).values[:, :count])
    assert torch.equal(every.gather(1, rows * columns + words), sums)
    assert all(len(set(places)) == count for places in (rows * columns + words).tolist())


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_log_probabilities_take_the_place_of_the_logits(kind: torch.dtype) -> None:
    logits = torch.randn((6, 32_001), generator=torch.Generator().manual_seed(3)).to(kind)
    expected, place = logits.double().log_softmax(dim=1).float(), logits.data_ptr()
    log_probs = log_softmax_(logits)
    assert (log_probs.dtype, log_probs.data_ptr() == place) == (torch.float32, kind == torch.float32)
    assert torch.allclose(log_probs, expected, atol=1e-5)
