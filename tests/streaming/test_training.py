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

from simnmt.nmt.checkpoint import TRAINING_FILE, WEIGHTS_FILE
from simnmt.nmt.errors import TrainingError
from simnmt.nmt.training import session
from simnmt.nmt.training.session import STATE_FILE
from simnmt.streaming.encoder.encoder_folder import load_encoder
from simnmt.streaming.encoder.learner import ElasticClassifier, ElasticLearner, ElasticRecipe
from simnmt.streaming.encoder.task import Task, read_task
from simnmt.streaming.encoder.tokenizer import PADDING, Pieces, learn_pieces, padded, tokenizer_from
from simnmt.streaming.encoder.trainer import configuration_of, epoch_batches, in_order, train
from simnmt.streaming.errors import StreamingError
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
    return out, train(task, out, RECIPE, dev=dev, threads=1)


def test_it_learns_and_every_depth_and_width_answers(trained: tuple[Path, dict[str, Any]], dev: Task) -> None:
    out, account = trained
    loaded = load_encoder(out)
    assert account["dev"]["accuracy"] > 0.9 and loaded.label_names == ("0", "1") and loaded.tokenizer is not None
    tokens, mask = padded(loaded.tokenizer.encode(dev.texts, 8), loaded.tokenizer.padding)
    labels = torch.from_numpy(dev.labels)

    def accuracy(**options: Any) -> float:
        return float((logits_of(loaded.weights, tokens, mask, **options).argmax(1) == labels).float().mean())

    assert accuracy() == pytest.approx(account["dev"]["accuracy"])
    for layers, slices in ((1, [0, 1, 2, 3]), (2, [1, 2]), (1, [3])):
        assert accuracy(layers=layers, slices=slices) > dev.majority + 0.2


def test_a_training_cut_in_two_gives_the_same_weights(
    trained: tuple[Path, dict[str, Any]], task: Task, dev: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call goes on from the last save as if nothing had been."""
    from simnmt.streaming.encoder import learner as learning

    out, steps, learnt = tmp_path / "cut", 0, learning.ElasticLearner.step

    def interrupted(self: Any, *arguments: Any, **named: Any) -> float:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise KeyboardInterrupt
        return learnt(self, *arguments, **named)

    monkeypatch.setattr(session, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(learning.ElasticLearner, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(task, out, RECIPE, dev=dev, threads=1)
    assert not (out / WEIGHTS_FILE).exists()
    with pytest.raises(StreamingError, match="its training has not ended"):
        load_encoder(out)
    account = train(task, out, RECIPE, dev=dev, threads=1)
    assert steps == 1 + account["training"]["steps"]
    assert load_encoder(out).weights.fingerprint == load_encoder(trained[0]).weights.fingerprint


def test_a_finished_training_is_not_trained_on(trained: tuple[Path, dict[str, Any]], task: Task, dev: Task) -> None:
    again = train(task, trained[0], RECIPE, dev=dev, threads=1)
    assert (again["training"]["steps"], again["dev"]) == (trained[1]["training"]["steps"], trained[1]["dev"])


def test_two_trainings_do_not_write_one_folder(task: Task, dev: Task, tmp_path: Path) -> None:
    messages: list[str] = []

    class EndedError(Exception):
        pass

    def train_again(stage: str, share: float | None) -> None:
        with pytest.raises(TrainingError) as refusal:
            train(task, tmp_path / "m", RECIPE, threads=1)
        messages.append(str(refusal.value))
        raise EndedError

    with pytest.raises(EndedError):
        train(task, tmp_path / "m", RECIPE, threads=1, progress=train_again)
    remedy = "let it end, or choose another --out"
    assert messages == [f"{tmp_path / 'm'}: another training is writing this folder ({remedy})"]
    assert list(tmp_path.iterdir()) == []


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    (tmp_path / "ones.tsv").write_text("sentence\tlabel\ngood film\t1\ngood day\t1\n")
    with pytest.raises(StreamingError, match=r"ones\.tsv: every example is labelled 1"):
        train(read_task(tmp_path / "ones.tsv"), tmp_path / "out", RECIPE)
    assert not (tmp_path / "out").exists()


def test_what_is_trained_on_does_not_judge(task: Task, tmp_path: Path) -> None:
    """A copy neither; examples that both files hold are counted."""
    shutil.copy(task.path, tmp_path / "copy.tsv")
    with pytest.raises(StreamingError, match=r"copy\.tsv: --dev: the very examples"):
        train(task, tmp_path / "out", RECIPE, dev=read_task(tmp_path / "copy.tsv"))
    assert not (tmp_path / "out").exists()
    few = "\n".join(Path(task.path).read_text().splitlines()[:4]) + "\nodd film\t1\n"
    (tmp_path / "few.tsv").write_text(few)
    account = train(task, tmp_path / "out", replace(RECIPE, epochs=0.1), dev=read_task(tmp_path / "few.tsv"), threads=1)
    assert (account["dev"]["examples"], account["dev"]["trained_on"]) == (4, 3)


@pytest.mark.parametrize("where", ["submodel", "slope"])
def test_a_step_that_would_spoil_the_weights_is_not_made(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole model's loss is a number all the while."""
    learner = ElasticLearner(configuration_of(RECIPE, 40, 2), RECIPE, torch.device("cpu"))
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    forward = ElasticClassifier.forward

    def broken(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        answer = forward(self, *arguments, **named)
        return answer * float("nan") if named else answer

    if where == "submodel":
        monkeypatch.setattr(ElasticClassifier, "forward", broken)
    else:
        next(iter(learner.model.parameters())).register_hook(lambda slope: slope * float("inf"))
    tokens = torch.randint(4, 40, (6, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    with pytest.raises(StreamingError, match="step 1 is not a number"):
        learner.step(tokens, mask, torch.tensor([0, 1] * 3), step=1, share=0.5)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.tensors().items())


def test_another_recipe_or_task_does_not_go_on(trained: tuple[Path, dict[str, Any]], task: Task) -> None:
    with pytest.raises(TrainingError, match=r"its training has recipe\.rate 0\.008, this one 0\.1"):
        train(task, trained[0], replace(RECIPE, rate=0.1))
    with pytest.raises(TrainingError, match="its training has task"):
        train(replace(task, sha256="0" * 64), trained[0], RECIPE)


def test_a_folder_of_something_else_is_left_alone(task: Task, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(TrainingError, match="something else"):
        train(task, tmp_path, RECIPE)
    with pytest.raises(TrainingError, match="not a folder"):
        train(task, tmp_path / "thesis.txt", RECIPE)


def test_a_damaged_folder_is_named(trained: tuple[Path, dict[str, Any]], task: Task, tmp_path: Path) -> None:
    for broken, message in (
        (WEIGHTS_FILE, "damaged"),
        ("encoder.json", "no JSON object"),
        ("tokenizer.model", "sentencepiece"),
    ):
        folder = tmp_path / broken
        folder.mkdir()
        for path in trained[0].iterdir():
            (folder / path.name).write_bytes(b"x" if path.name == broken else path.read_bytes())
        with pytest.raises(StreamingError, match=message):
            load_encoder(folder)
    folder = tmp_path / "state"
    folder.mkdir()
    for name in (TRAINING_FILE, STATE_FILE, "tokenizer.model"):
        (folder / name).write_bytes(b"x" if name == STATE_FILE else (trained[0] / name).read_bytes())
    with pytest.raises(TrainingError, match="state cannot be read"):
        train(task, folder, RECIPE)


def test_the_rate_rises_and_falls_to_nothing() -> None:
    rates = [RECIPE.rate_at(share) for share in np.linspace(0.0, 1.0, 101)]
    assert rates[0] == 0.0 and max(rates) == RECIPE.rate == rates[8] and rates[-1] == pytest.approx(0.0)


def test_each_epoch_deals_every_example_once_within_the_batch() -> None:
    lengths = np.random.default_rng(1).integers(1, 30, 200)
    epochs = [epoch_batches(lengths, 64, seed=1, epoch=epoch) for epoch in (0, 1, 0)]
    for batches in epochs:
        assert sorted(row for batch in batches for row in batch) == list(range(200))
        assert all(len(batch) * lengths[batch].max() <= 64 for batch in batches)
    assert [batch.tolist() for batch in epochs[0]] == [batch.tolist() for batch in epochs[2]]
    assert [batch.tolist() for batch in epochs[0]] != [batch.tolist() for batch in epochs[1]]
    assert [len(batch) for batch in in_order(np.array([100, 3, 3]), np.arange(3), 8)] == [1, 2]


def test_our_tokenizer_begins_texts_parts_pairs_and_is_made_anew_from_its_file() -> None:
    pieces = learn_pieces(["the good film", "the bad film"] * 5, 24)
    again = tokenizer_from(pieces.files)
    assert isinstance(again, Pieces) and tokenizer_from({}) is None
    (one,), (pair,) = again.encode(["good"], 9), again.encode([("good", "good")], 99)
    assert one[0] == 2 and pair == [*one, 3, *one[1:]]
    assert again.encode(["good film the bad film"], 4) == [pieces.encode(["good film the bad film"], 99)[0][:4]]
    ids, mask = padded([[2, 5], [2]], PADDING, 3)
    assert ids.tolist() == [[2, 5, 0], [2, 0, 0]] and mask.tolist() == [[True, True, False], [True, False, False]]


GPU_RECIPE = ElasticRecipe(layers=2, slices=4, width=16, ffn=32, vocab=50, positions=40, dropout=0.0, embedding_dropout=0.0)


def test_a_training_on_a_gpu_has_the_losses_of_the_processor_and_waits_little() -> None:
    configuration = made_weights(layers=2).configuration
    tokens, labels = torch.arange(5, 17).view(3, 4), torch.tensor([0, 1, 1])
    mask = torch.arange(4)[None, :] < torch.tensor([4, 2, 3])[:, None]

    def losses(learner: ElasticLearner, steps: range) -> list[float]:
        return [learner.step(tokens, mask, labels, step=step, share=0.1) for step in steps]

    on_processor = ElasticLearner(configuration, GPU_RECIPE, torch.device("cpu"))
    expected = losses(on_processor, range(1, 5))
    with pretended_gpu() as gpu:
        learner = ElasticLearner(configuration, GPU_RECIPE, GPU)
        gpu.waits.clear()
        assert losses(learner, range(1, 3)) == pytest.approx(expected[:2], rel=1e-5)
        assert sum(count for place, count in gpu.waits.items() if not place.startswith("to ")) <= 2 * 2, gpu.waits
        restored = ElasticLearner(configuration, GPU_RECIPE, GPU)
        restored.restore({name: tensor.cpu() for name, tensor in learner.tensors().items()})
        assert losses(restored, range(3, 5)) == pytest.approx(expected[2:], rel=1e-5)
        assert torch.equal(restored.predicted(tokens, mask), on_processor.predicted(tokens, mask))
