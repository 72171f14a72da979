"""One step of learning: the loss of a batch, its gradient, and what Adam makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from simnmt.nmt.memory import within_memory
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.tensor_files import check_tensors, own_tensors
from simnmt.nmt.training.encoded import Batch
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.recipe import Recipe
from simnmt.streams import stream

_WEIGHTS, _MOMENTS = "weights", ("step", "exp_avg", "exp_avg_sq")
"""What the names of kept tensors begin with; the moments as Adam calls them."""


class Learner:
    """A model and its optimiser; what a step draws depends on the seed and the step's number, on nothing before it."""

    def __init__(self, model: TranslationModel, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.recipe = recipe
        self.device = device
        self.whole = True
        """Whether all weights are of one step; False once an update has failed midway."""
        self._clip_weights: Callable[[], None] | None = getattr(self.model, "clip_weights", None)
        """What a model that has it wants done after each step."""
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9)

    def step(self, batch: Batch, step: int) -> float:
        """Learn from one batch as step number `step`, from 1; returns the smoothed loss, the sum over its tokens in nats.

        Raises `TrainingError` where the loss is no number, before it spoils the weights, and `OutOfMemory`; where that came
        amid the update, `whole` is False from then on.
        """
        draw = stream(self.recipe.seed, 0, "dropout", step)
        torch.manual_seed(int(draw.integers(2**62)))
        self.model.train()
        value = within_memory(str(self.device), lambda: self._gradient(batch))
        if not math.isfinite(value):
            remedy = "start again in another folder with a smaller --rate"
            raise TrainingError(f"the loss of step {step:,} is not a number", remedy=remedy)
        within_memory(str(self.device), lambda: nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(step)
        self.whole = False
        within_memory(str(self.device), self.optimizer.step)
        if self._clip_weights is not None:
            self._clip_weights()
        self.whole = True
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

    def tensors(self) -> dict[str, Tensor]:
        """Weights and Adam's moments by name, all that the next step depends on; no two share memory."""
        weights = {f"{_WEIGHTS}.{name}": tensor for name, tensor in own_tensors(self.model).items()}
        return weights | {
            f"{kind}.{name}": moment
            for name, parameter in self.model.named_parameters()
            for kind, moment in self.optimizer.state.get(parameter, {}).items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` gave, and keep them; raises `ValueError`, which names the first that does not fit."""
        parameters = dict(self.model.named_parameters())
        # A parameter that no step has moved yet has no moments.
        learnt = [name for name in parameters if any(f"{kind}.{name}" in tensors for kind in _MOMENTS)]
        shapes: dict[str, Sequence[int]] = {
            f"{_WEIGHTS}.{name}": tensor.shape for name, tensor in own_tensors(self.model).items()
        }
        for kind in _MOMENTS:
            shapes |= {f"{kind}.{name}": () if kind == "step" else parameters[name].shape for name in learnt}
        check_tensors(tensors, shapes)
        prefix = f"{_WEIGHTS}."
        weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        self.model.load_state_dict(weights, strict=False)
        state = {
            index: {kind: tensors[f"{kind}.{name}"] for kind in _MOMENTS}
            for index, name in enumerate(parameters)
            if name in learnt
        }
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
