"""One step of learning: the loss of a batch, its gradient, and what Adam makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from simnmt.nmt.memory import within_memory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.training.encoded import Batch
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.recipe import Recipe
from simnmt.streams import stream


class Learner:
    """A model and its optimiser; what a step draws depends on the seed and the step's number, on nothing before it."""

    def __init__(self, model: TranslationModel, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.recipe = recipe
        self.device = device
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9)

    def step(self, batch: Batch, step: int) -> float:
        """Learn from one batch as step number `step`, from 1; returns the smoothed loss, the sum over its tokens in nats.

        Raises `TrainingError` where the loss is no number, before it spoils the weights, and `OutOfMemory`, after which
        the weights are as they were.
        """
        draw = stream(self.recipe.seed, 0, "dropout", step)
        torch.manual_seed(int(draw.integers(2**62)))
        self.model.train()
        value = within_memory(str(self.device), lambda: self._gradient(batch))
        if not math.isfinite(value):
            remedy = "start again in another folder with a smaller --rate"
            raise TrainingError(f"the loss of step {step:,} is not a number", remedy=remedy)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(step)
        self.optimizer.step()
        return value

    @torch.inference_mode()
    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Mean loss per target token in nats, without smoothing and dropout: the logarithm of the perplexity."""
        self.model.eval()
        total, tokens = 0.0, 0
        for batch in batches:
            total += within_memory(str(self.device), partial(self._value, batch))
            tokens += batch.tgt_tokens
        return total / tokens

    def _gradient(self, batch: Batch) -> float:
        loss = self._loss(batch, self.recipe.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        (loss / batch.tgt_tokens).backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def _value(self, batch: Batch) -> float:
        return float(self._loss(batch, 0.0).item())

    def _loss(self, batch: Batch, smoothing: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
            logits = self.model(batch.src, batch.src_lengths, batch.tgt_in)
        pad = self.recipe.architecture.pad_token
        targets = batch.tgt_out.flatten()
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets, ignore_index=pad, label_smoothing=smoothing, reduction="sum"
        )

    def state(self) -> dict[str, Any]:
        """Weights and the optimiser's moments."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to what `state` gave; raises `KeyError`, `ValueError` or `RuntimeError` where it does not fit."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
