"""What training keeps, how it goes on, and that what it makes can be cut."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.errors import TrainingError
from simnmt.nmt.training import trainer
from simnmt.streaming.encoder import padded
from simnmt.streaming.encoder_folder import load_encoder
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.texts import PADDING, PIECES_FILE, Pieces, Task, read_task
from simnmt.streaming.training import ElasticClassifier, ElasticLearner, ElasticRecipe, train_encoder
from tests.pretended_gpu import GPU, pretended_gpu
from tests.streaming.made_encoder import logits_of, made_weights

RECIPE = ElasticRecipe(
    layers=2,
    slices=4,
    width=16,
    ffn=32,
    vocab=40,
    positions=8,
    epochs=5.0,
    batch_tokens=120,
    rate=8e-3,
    dropout=0.0,
    embedding_dropout=0.0,
    word_dropout=0.05,
    smoothing=0.0,
)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    """Whether more of a sentence's words are pleasant than unpleasant; two parts without a common sentence."""
    words = {"good": 1, "fine": 1, "bad": -1, "sad": -1, "film": 0, "the": 0}
    lines = ["sentence\tlabel"]
    for chosen in itertools.product(words, repeat=4):
        score = sum(words[word] for word in chosen)
        if score:
            lines.append(f"{' '.join(chosen)}\t{int(score > 0)}")
    folder, parts = tmp_path_factory.mktemp("task"), []
    for begin, name in ((1, "films.tsv"), (2, "dev.tsv")):
        (folder / name).write_text("\n".join([lines[0], *lines[begin::3]]) + "\n")
        parts.append(read_task(folder / name))
    return parts


@pytest.fixture(scope="module")
def task(films: list[Task]) -> Task:
    return films[0]


@pytest.fixture(scope="module")
def dev(films: list[Task]) -> Task:
    return films[1]


@pytest.fixture(scope="module")
def trained(task: Task, dev: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("trained") / "model"
    return out, train_encoder(task, out, RECIPE, dev=dev, threads=1)


def test_it_learns_and_every_depth_and_width_answers(trained: tuple[Path, dict[str, Any]], dev: Task) -> None:
    out, account = trained
    loaded = load_encoder(out)
    assert account["judged"]["accuracy"] > 0.9 and loaded.label_names == ("0", "1")
    tokenizer = Pieces(loaded.files[PIECES_FILE])
    tokens, mask = padded(tokenizer.encode(dev.texts, 8), PADDING)
    labels = torch.from_numpy(dev.labels)

    def accuracy(**options: Any) -> float:
        return float((logits_of(loaded, tokens, mask, **options).argmax(1) == labels).float().mean())

    assert accuracy() == pytest.approx(account["judged"]["accuracy"])
    for layers, slices in ((1, [0, 1, 2, 3]), (2, [1, 2]), (1, [3])):
        assert accuracy(layers=layers, slices=slices) > dev.majority + 0.2


def test_a_training_cut_in_two_gives_the_same_weights(
    trained: tuple[Path, dict[str, Any]], task: Task, dev: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call goes on from the last save as if nothing had been."""
    out, steps, step = tmp_path / "cut", 0, ElasticLearner.step

    def interrupted(self: Any, *arguments: Any) -> float:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(trainer, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(ElasticLearner, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_encoder(task, out, RECIPE, dev=dev, threads=1)
    assert not (out / WEIGHTS_FILE).exists()
    with pytest.raises(StreamingError, match="no trained encoder"):
        load_encoder(out)
    account = train_encoder(task, out, RECIPE, dev=dev, threads=1)
    assert steps == 1 + account["training"]["steps"]
    assert load_encoder(out).fingerprint == load_encoder(trained[0]).fingerprint
    again = train_encoder(task, out, RECIPE, dev=dev, threads=1)  # a finished one takes no step
    assert (again["training"]["steps"], again["judged"]) == (account["training"]["steps"], account["judged"])


def test_what_is_trained_on_does_not_judge(task: Task, tmp_path: Path) -> None:
    """A copy neither; examples that both files hold are counted."""
    shutil.copy(task.path, tmp_path / "copy.tsv")
    with pytest.raises(StreamingError, match=r"copy\.tsv: --dev: the very examples"):
        train_encoder(task, tmp_path / "out", RECIPE, dev=read_task(tmp_path / "copy.tsv"))
    assert not (tmp_path / "out").exists()
    few = "\n".join(Path(task.path).read_text().splitlines()[:4]) + "\nodd film\t1\n"
    (tmp_path / "few.tsv").write_text(few)
    account = train_encoder(task, tmp_path / "out", replace(RECIPE, epochs=0.1), dev=read_task(tmp_path / "few.tsv"), threads=1)
    assert (account["judged"]["examples"], account["judged"]["trained_on"]) == (4, 3)


@pytest.mark.parametrize("where", ["submodel", "slope"])
def test_a_step_that_would_spoil_the_weights_is_not_made(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole model's loss is a number all the while."""
    learner = learner_on(torch.device("cpu"))
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    forward = ElasticClassifier.forward

    def broken(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        answer = forward(self, *arguments, **named)
        return answer * float("nan") if named else answer

    if where == "submodel":
        monkeypatch.setattr(ElasticClassifier, "forward", broken)
    else:
        next(iter(learner.model.parameters())).register_hook(lambda slope: slope * float("inf"))
    with pytest.raises(TrainingError, match="step 1 is not a number"):
        learner.step(np.arange(3), 1, 0.5)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.model.state_dict().items())


def test_a_damaged_folder_is_named(trained: tuple[Path, dict[str, Any]], task: Task, tmp_path: Path) -> None:
    for broken, message in ((WEIGHTS_FILE, "damaged"), ("encoder.json", "damaged"), ("tokenizer.model", "sentencepiece")):
        folder = tmp_path / broken
        folder.mkdir()
        for path in trained[0].iterdir():
            (folder / path.name).write_bytes(b"x" if path.name == broken else path.read_bytes())
        with pytest.raises(StreamingError, match=message):
            load_encoder(folder)


SMALL = ElasticRecipe(layers=2, slices=4, width=16, ffn=32, vocab=50, positions=40, dropout=0.0, embedding_dropout=0.0)


def learner_on(device: torch.device) -> ElasticLearner:
    """Return a learner of three texts."""
    task = Task("made.tsv", ("a", "b", "c"), np.array([0, 1, 1]), ("0", "1"), "")
    tokens = [[5, 6, 7, 8], [9, 10], [13, 14, 15]]
    return ElasticLearner(made_weights(layers=2).configuration, SMALL, device, task, tokens)


def test_a_training_on_a_gpu_has_the_losses_of_the_processor() -> None:
    def losses(learner: ElasticLearner, steps: range) -> list[float]:
        return [learner.step(np.arange(3), step, 0.1) for step in steps]

    expected = losses(learner_on(torch.device("cpu")), range(1, 5))
    with pretended_gpu():
        assert losses(learner_on(GPU), range(1, 3)) == pytest.approx(expected[:2], rel=1e-5)
