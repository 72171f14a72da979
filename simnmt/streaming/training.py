"""Train an elastic classifier, whose bottom layers and slices work alone, on a task, and write its folder.

The model is pre-norm and keeps its weights slice by slice, so that any depth and any slices can run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from simnmt.base.configuration import checked_dataclass
from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.base.random_streams import stream
from simnmt.nmt.training.recipe import AboveZero, Positive, Share
from simnmt.nmt.training.trainer import (
    Budget,
    Learner,
    Progress,
    Rows,
    Tell,
    batch_slices,
    epoch_batches,
    machine_facts,
    train,
    training_folder,
)
from simnmt.streaming.encoder import ElasticEncoder, EncoderConfiguration, EncoderWeights, padded, random_resident
from simnmt.streaming.encoder_folder import save_encoder
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.shards import SEGMENTS, LayerWeights, segment_rows
from simnmt.streaming.texts import PADDING, PIECES_FILE, UNKNOWN, Pieces, Task, learn_pieces

TokenIds = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class ElasticRecipe:
    """Settings of a training.

    The same recipe and task give the same weights on the same machine and number of threads, in any number of sessions. With
    `minutes` they differ, because the number of steps depends on the speed of the machine.
    """

    layers: Positive = 12
    slices: Positive = 12
    width: Positive = 96
    ffn: Positive = 192
    vocab: Annotated[int, Field(ge=8)] = 4000
    positions: Annotated[int, Field(ge=2)] = 64
    epochs: AboveZero | None = 7.0
    """Tuned on SST-2, where the dev accuracy rose no further; 18 epochs give the same test accuracy."""
    minutes: AboveZero | None = None
    """Minutes of training over all sessions; replaces `epochs`."""
    batch_tokens: Positive = 700
    rate: AboveZero = 7e-4
    """Greatest learning rate; reached after the share `warmup`, then falls to 0 as half a cosine."""
    embedding_rate: AboveZero = 5.0
    """Factor on the learning rate of word vectors and classifier."""
    warmup: Share = 0.08
    dropout: Share = 0.1
    embedding_dropout: Share = 0.3
    """Dropout of word vectors and of the input of the classifier."""
    word_dropout: Share = 0.1
    """Share of tokens replaced by the unknown token."""
    smoothing: Share = 0.1
    decay: Share = 0.01
    averaging: Share = 0.998
    """Decay of the running mean of the weights, which training keeps."""
    least_slices: Share = 0.25
    """Least share of slices of a random submodel."""
    seed: int = 1

    def __post_init__(self) -> None:
        if self.width % self.slices or self.ffn % self.slices or self.width % 2:
            raise ValueError(f"width {self.width} and ffn {self.ffn} must divide by {self.slices} slices, the width by 2")

    def rate_at(self, share: float) -> float:
        """Return the learning rate when `share` of the training is done."""
        if share < self.warmup:
            return self.rate * share / self.warmup
        fallen = min((share - self.warmup) / (1.0 - self.warmup), 1.0)
        return self.rate * 0.5 * (1.0 + math.cos(math.pi * fallen))


def recipe_with(**given: Any) -> ElasticRecipe:
    """Return the default recipe with the given fields; None keeps a default, and `minutes` replaces `epochs`.

    Raises `StreamingError` for a value out of limits.
    """
    kept = {name: value for name, value in given.items() if value is not None}
    if "minutes" in kept and "epochs" in kept:
        raise StreamingError("--epochs beside --minutes", remedy="give one of them")
    try:
        return checked_dataclass(ElasticRecipe, kept | ({"epochs": None} if "minutes" in kept else {}))
    except ValueError as error:
        raise StreamingError(f"the recipe: {error}") from None


class ElasticClassifier(nn.Module):
    """The parameters of an encoder, slice by slice, so that any depth and any slices can run (STI-01)."""

    def __init__(self, configuration: EncoderConfiguration, *, dropout: float = 0.0, embedding_dropout: float = 0.0) -> None:
        super().__init__()
        self.configuration, width, layers = configuration, configuration.width, configuration.layers
        resident = random_resident(configuration, torch.default_generator, 0.3)
        angles = torch.arange(configuration.positions)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10_000.0) / width)
        )
        # Sines and cosines of falling frequency, one after the other.
        resident["embeddings.position"] = 0.3 * torch.stack([angles.sin(), angles.cos()], 2).flatten(1)
        resident["classifier.weight"].zero_()
        tensors = {name: nn.Parameter(tensor) for name, tensor in resident.items()}
        # The names of parameters hold no dots.
        self.resident = nn.ParameterDict({name.replace(".", "/"): parameter for name, parameter in tensors.items()})
        self.segments = nn.ParameterDict()
        """By layer and name, [slices, rows, width]."""
        for layer in range(layers):
            for name, rows in segment_rows(configuration.geometry).items():
                # Keeps the sum over all layers initially as small as the input of the first.
                shrink = (2.0 * layers) ** -0.5 if name in ("o", "ffn_out") else 1.0
                deviation = shrink * (configuration.ffn if name == "ffn_out" else width) ** -0.5
                self.segments[f"{layer}/{name}"] = nn.Parameter(deviation * torch.randn(configuration.heads, rows, width))
        self._encoder = ElasticEncoder(configuration, tensors)
        self._encoder.drop_outputs = lambda output: functional.dropout(output, dropout, self.training)
        self._encoder.drop_vectors = lambda vectors: functional.dropout(vectors, embedding_dropout, self.training)

    def forward(
        self, tokens: Tensor, mask: Tensor, *, depth: int | None = None, slices: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Return the logits [b, classes] of the bottom `depth` layers with `slices` of each, None for all.

        `mask` [b, l] is True at tokens.
        """
        hidden, width = self._encoder.embed(tokens, mask), self.configuration.width
        for layer in range(self.configuration.layers if depth is None else depth):
            chosen = None if slices is None else slices[layer]
            whole = {name: self.segments[f"{layer}/{name}"] for name in SEGMENTS}
            part = {name: (rows if chosen is None else rows[chosen]).reshape(-1, width) for name, rows in whole.items()}
            hidden = self._encoder.layer_of(part, hidden, mask, layer, chosen)
        return self._encoder.logits(hidden, mask)

    def exported(self) -> EncoderWeights:
        resident = {name.replace("/", "."): tensor.detach().clone() for name, tensor in self.resident.items()}
        layers = []
        for layer in range(self.configuration.layers):
            rows = {name: self.segments[f"{layer}/{name}"].detach().flatten(0, 1).clone() for name in SEGMENTS}
            layers.append(LayerWeights(**rows | {name: rows[name].t().contiguous() for name in ("o", "ffn_out")}))
        return EncoderWeights(self.configuration, resident, layers.__getitem__)


class ElasticLearner(Learner):
    """A classifier, the running mean of its weights, and a task.

    Each step trains the whole model and one submodel of random depth with the same number of random slices in each layer, so
    that a planner may leave out any slices. The submodel learns half from the labels and half from the answer of the whole
    model, as in DynaBERT.
    """

    def __init__(
        self,
        configuration: EncoderConfiguration,
        recipe: ElasticRecipe,
        device: torch.device,
        task: Task,
        tokens: TokenIds,
        dev: tuple[Task, TokenIds] | None = None,
    ) -> None:
        """`tokens`: token ids of the texts of `task`; `dev`: examples to report the accuracy on after each epoch."""
        torch.manual_seed(int(stream(recipe.seed, 0, "elastic-weights").integers(2**62)))
        model = ElasticClassifier(configuration, dropout=recipe.dropout, embedding_dropout=recipe.embedding_dropout).to(device)
        self.recipe, self.labels, self.tokens, self.dev = recipe, task.labels, tokens, dev
        groups: list[list[nn.Parameter]] = [[], [], []]
        for name, tensor in model.named_parameters():
            fast = name.startswith(("resident.embeddings/word", "resident.classifier/"))
            groups[0 if fast else 1 if tensor.dim() > 1 else 2].append(tensor)
        decays = (recipe.decay, recipe.decay, 0.0)
        optimizer = torch.optim.AdamW(
            [{"params": group, "weight_decay": decay} for group, decay in zip(groups, decays, strict=True)],
            lr=recipe.rate,
            betas=(0.9, 0.98),
            fused=True,
        )
        super().__init__(model, optimizer, device, recipe.seed)
        self.mean = ElasticClassifier(configuration).eval().requires_grad_(False).to(device)
        self.mean.load_state_dict(model.state_dict())
        self.models["mean"] = self.mean

    def batches(self, epoch: int) -> list[Rows]:
        lengths = np.array([len(ids) for ids in self.tokens])
        return epoch_batches(lengths, self.recipe.batch_tokens, seed=self.seed, epoch=epoch)

    def rates(self, step: int, share: float) -> list[float]:
        rate = self.recipe.rate_at(share)
        return [self.recipe.embedding_rate * rate, rate, rate]

    def loss(self, rows: Rows, draw: np.random.Generator) -> Tensor:
        recipe = self.recipe
        tokens, mask = padded([self.tokens[row] for row in rows], PADDING)
        if recipe.word_dropout:
            hidden = torch.from_numpy(draw.random(tokens.shape) < recipe.word_dropout)
            hidden[:, 0] = False
            tokens = torch.where(hidden & mask, UNKNOWN, tokens)
        labels = torch.from_numpy(self.labels[rows]).to(self.device)
        tokens, mask = tokens.to(self.device), mask.to(self.device)
        depth = int(draw.integers(1, recipe.layers + 1))
        count = int(draw.integers(max(1, math.ceil(recipe.least_slices * recipe.slices)), recipe.slices + 1))
        slices = [torch.from_numpy(np.sort(draw.permutation(recipe.slices)[:count])).to(self.device) for _ in range(depth)]
        answer = self.model(tokens, mask)
        smaller = self.model(tokens, mask, depth=depth, slices=slices)
        taught = functional.cross_entropy(smaller, answer.detach().softmax(1))
        whole, part = (
            functional.cross_entropy(logits, labels, label_smoothing=recipe.smoothing) for logits in (answer, smaller)
        )
        return whole + 0.5 * (part + taught)

    def stepped(self, step: int) -> None:
        keep = min(self.recipe.averaging, (1 + step) / (10 + step))
        for mean, now in zip(self.mean.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(now, 1.0 - keep)

    def look(self, progress: Progress, folder: Path) -> dict[str, float]:
        return {} if self.dev is None else {"dev_accuracy": self.accuracy(*self.dev)}

    @torch.inference_mode()
    def accuracy(self, task: Task, tokens: TokenIds) -> float:
        """Return the share of right answers of the mean weights."""
        lengths, right = np.array([len(ids) for ids in tokens]), 0
        order = np.argsort(lengths, kind="stable")
        for run in batch_slices(lengths[order], 4 * self.recipe.batch_tokens):
            ids, mask = padded([tokens[row] for row in order[run]], PADDING)
            answers = self.mean(ids.to(self.device), mask.to(self.device)).argmax(1).cpu().numpy()
            right += int((answers == task.labels[order[run]]).sum())
        return right / len(task)


def train_encoder(
    task: Task,
    out: Path,
    recipe: ElasticRecipe,
    *,
    dev: Task | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Train on `task`, or resume the training in `out`, until the recipe ends; return its training.json.

    `out` holds a model only after the last step. An interrupted training goes on from its last save. `dev`: examples to report
    the accuracy on after each epoch; they do not influence the weights.

    Raises `StreamingError` for a task with one class, and if `dev` equals `task`; `TrainingError` for a folder that cannot be
    used, or in which another process trains.
    """
    if dev is not None and dev.sha256 == task.sha256:
        what = "--dev: the very examples that are trained on"
        raise StreamingError(what, path=dev.path, remedy="give others, or leave it out")
    if len(set(task.labels.tolist())) < 2:
        raise StreamingError("every example has the same label", path=task.path, remedy="give examples of two classes")
    judged, name = (task, "the examples it was trained on") if dev is None else (dev, Path(dev.path).name)
    account: dict[str, Any] = {"schema_version": 1, "recipe": asdict(recipe), "sha256": task.sha256}
    with training_folder(out, account, lambda: learn_pieces(task.texts, recipe.vocab).files, device, threads) as where:
        pieces = Pieces(read_bounded(out / PIECES_FILE, MOST_MODEL_BYTES))
        configuration = EncoderConfiguration(
            kind="elastic",
            layers=recipe.layers,
            heads=recipe.slices,
            width=recipe.width,
            ffn=recipe.ffn,
            vocabulary=pieces.size,
            positions=recipe.positions,
            classes=len(task.label_names),
            norm="pre",
            norm_epsilon=1e-5,
            pooling="mean",
            head=False,
        )
        tokens, judged_tokens = (pieces.encode(examples.texts, recipe.positions) for examples in (task, judged))
        learner = ElasticLearner(configuration, recipe, where, task, tokens, None if dev is None else (dev, judged_tokens))
        account |= {
            "label_names": list(task.label_names),
            "examples": len(task),
            "parameters": sum(tensor.numel() for tensor in learner.model.parameters()),
            "vocabulary": pieces.size,
            **machine_facts(where),
        }
        budget = Budget(recipe.epochs, minutes=recipe.minutes)
        account["training"] = train(learner, out, account, budget, progress or (lambda stage, share: None)).as_json()
        account["judged"] = {
            "path": name,
            "sha256": judged.sha256,
            "examples": len(judged),
            "trained_on": judged.shared_texts(task),
            "majority": judged.majority,
            "accuracy": learner.accuracy(judged, judged_tokens),
        }
        save_encoder(out, learner.mean.cpu().exported(), account)
        return account
