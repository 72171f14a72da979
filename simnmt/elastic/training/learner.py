"""One step of learning: the whole model and a random submodel of it, and the running mean of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from simnmt.elastic.encoder_weights import EncoderConfiguration
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.tokenizer import UNKNOWN
from simnmt.elastic.training.model import ElasticClassifier
from simnmt.elastic.training.recipe import ElasticRecipe
from simnmt.nmt.tensor_files import check_tensors
from simnmt.streams import stream

_FAST = ("word.", "classifier.")
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class ElasticLearner:
    """A model, Adam, and the mean of the weights; what a step draws depends on the seed and its number, on nothing before it.

    Each step learns from the whole model and from one submodel of random depth whose layers have as many slices each, drawn
    anew for each layer: so any slices can be left out, as a planner will that takes the most important ones. The submodel
    learns half from the labels and half from the whole model's answer (the manner of DynaBERT).
    """

    def __init__(self, configuration: EncoderConfiguration, recipe: ElasticRecipe, device: torch.device) -> None:
        torch.manual_seed(int(stream(recipe.seed, 0, "elastic-weights").integers(2**62)))
        self.recipe, self.device = recipe, device
        self.model = ElasticClassifier(configuration, dropout=recipe.dropout, embedding_dropout=recipe.embedding_dropout)
        self.model.to(device)
        self.mean = ElasticClassifier(configuration, dropout=0.0, embedding_dropout=0.0).eval().requires_grad_(False)
        self.mean.to(device).load_state_dict(self.model.state_dict())
        self.whole = True
        """Whether all weights are of one step; False once an update has failed midway."""
        named = list(self.model.named_parameters())
        fast = [tensor for name, tensor in named if name.startswith(_FAST)]
        matrices = [tensor for name, tensor in named if not name.startswith(_FAST) and tensor.dim() > 1]
        vectors = [tensor for name, tensor in named if not name.startswith(_FAST) and tensor.dim() <= 1]
        self._factors = (recipe.embedding_rate, 1.0, 1.0)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": fast, "weight_decay": recipe.decay},
                {"params": matrices, "weight_decay": recipe.decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=recipe.rate,
            betas=(0.9, 0.98),
            fused=True,
        )

    def step(self, tokens: Tensor, mask: Tensor, labels: Tensor, *, step: int, share: float) -> float:
        """Learn from one batch as step number `step`, from 1, when `share` of the training is done; the whole model's loss.

        Raises `ElasticError` where a loss or its slope is no number, before it spoils the weights.
        """
        recipe, draw = self.recipe, stream(self.recipe.seed, 0, "elastic-step", step)
        torch.manual_seed(int(draw.integers(2**62)))
        self.model.train()
        if recipe.word_dropout:
            hidden = torch.from_numpy(draw.random(tokens.shape) < recipe.word_dropout)
            hidden[:, 0] = False
            tokens = torch.where(hidden & mask, UNKNOWN, tokens)
        tokens, mask, labels = tokens.to(self.device), mask.to(self.device), labels.to(self.device)
        depth, slices = self._drawn(draw)
        answer = self.model(tokens, mask)
        loss = functional.cross_entropy(answer, labels, label_smoothing=recipe.smoothing)
        value = float(loss.detach())
        smaller = self.model(tokens, mask, depth=depth, slices=slices)
        taught = functional.cross_entropy(smaller, answer.detach().softmax(1))
        loss = loss + 0.5 * (functional.cross_entropy(smaller, labels, label_smoothing=recipe.smoothing) + taught)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        slope = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        # Of both models: a submodel may overflow where the whole does not, and slopes where losses do not.
        if not math.isfinite(float(loss.detach() + slope)):
            raise ElasticError(f"the loss of step {step:,} is not a number", remedy="start again with a smaller --rate")
        for group, factor in zip(self.optimizer.param_groups, self._factors, strict=True):
            group["lr"] = factor * recipe.rate_at(share)
        self.whole = False
        self.optimizer.step()
        with torch.no_grad():
            keep = min(recipe.averaging, (1 + step) / (10 + step))
            for mean, now in zip(self.mean.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(now, 1.0 - keep)
        self.whole = True
        return value

    def _drawn(self, draw: np.random.Generator) -> tuple[int, list[Tensor]]:
        recipe = self.recipe
        depth = int(draw.integers(1, recipe.layers + 1))
        count = int(draw.integers(max(1, math.ceil(recipe.least_slices * recipe.slices)), recipe.slices + 1))
        chosen = [np.sort(draw.permutation(recipe.slices)[:count]) for _ in range(depth)]
        return depth, [torch.from_numpy(slices).to(self.device) for slices in chosen]

    @torch.inference_mode()
    def predicted(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The class that the mean weights give each text."""
        logits: Tensor = self.mean(tokens.to(self.device), mask.to(self.device))
        return logits.argmax(1).cpu()

    def tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on, by name."""
        kept = {f"weights.{name}": tensor for name, tensor in self.model.state_dict().items()}
        kept |= {f"mean.{name}": tensor for name, tensor in self.mean.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            kept |= {f"{kind}.{name}": value for kind, value in self.optimizer.state.get(parameter, {}).items()}
        return kept

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` gave; raises `ValueError`, which names the first that does not fit."""
        models, parameters = {"weights": self.model, "mean": self.mean}, dict(self.model.named_parameters())
        # A parameter that no step has moved yet has no moments.
        learnt = [name for name in parameters if any(f"{kind}.{name}" in tensors for kind in _MOMENTS)]
        shapes: dict[str, Sequence[int]] = {
            f"{kind}.{name}": tensor.shape for kind, model in models.items() for name, tensor in model.state_dict().items()
        }
        for kind in _MOMENTS:
            shapes |= {f"{kind}.{name}": () if kind == "step" else parameters[name].shape for name in learnt}
        check_tensors(tensors, shapes)
        for kind, model in models.items():
            model.load_state_dict({name: tensors[f"{kind}.{name}"] for name in model.state_dict()})
        for name in learnt:
            self.optimizer.state[parameters[name]] = {
                kind: tensors[f"{kind}.{name}"].to(self.device, copy=True) for kind in _MOMENTS
            }
