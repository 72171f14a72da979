"""Measure a study of a streamed classifier: every submodel that its plans need answers the examples of a task.

The order of importance comes from other examples than those that accuracy is measured on (STI-09). A study that was stopped
goes on with the answers that its file lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch

from simnmt.base.files import refuse_replacing
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.streamed_model import check_bits, measure_importance
from simnmt.nmt.devices import torch_threads
from simnmt.papers.kit.study import TOOL, PartRun, part_run, read_study, write_study
from simnmt.papers.sti.plans import Planner, submodels
from simnmt.papers.sti.study import Answers, ImportanceOrder, StudiedClassifier, StudiedTask, Study, packed
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task, read_task

Progress = Callable[[float, int, str], None]
SAVED_EVERY = 50
"""Submodels after which the study is written."""


def measure(study: Study, evaluator: Evaluator, *, out: Path | None = None, progress: Progress | None = None) -> Study:
    """Evaluate the submodels whose answers the study lacks, and keep it in the file `out`."""
    model, answers = study.model, dict(study.answers)
    needed = submodels(Planner(model.layers, model.heads, study.importance.order))
    missing = {name: bits for name, bits in needed.items() if name not in answers}
    if not missing:
        return study
    whole = evaluator.evaluate(dict.fromkeys(product(range(model.layers), range(model.heads)), 32))
    for done, (name, bits) in enumerate(missing.items(), start=1):
        result = evaluator.evaluate(bits)
        answers[name] = Answers(accuracy=result.accuracy, agreement=result.agreement(whole), correct=packed(result.correct))
        if progress is not None:
            progress(done, len(missing), "submodels")
        if done % SAVED_EVERY == 0 or done == len(missing):
            run = part_run(PartRun, 1, ("torch", "numpy", "scipy"))
            measured = study.model_copy(update={"answers": dict(answers), "runs": (*study.runs, run), "tool": TOOL})
            if out is not None:
                write_study(out, measured)
    return measured


def study_classifier(
    store_path: Path,
    task_path: Path,
    *,
    importance_task: Path | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Study:
    """Study a classifier on one thread.

    Args:
        store_path: shards of the classifier.
        task_path: labelled examples that it was not trained on, to judge by.
        importance_task: examples by which shards are ranked; those of the task itself flatter the order.
        out: the file that the study is kept in and continued from.

    Raises `InputError` of several rooms, before anything is measured.
    """
    refuse_replacing(out, task_path, importance_task)
    with ShardStore(store_path) as store, torch_threads(1), torch.inference_mode():
        check_bits(store)
        if store.index.random:
            raise CalibrationError("shards of an untrained model", path=store_path, remedy="shard a trained one")
        geometry, task = store.geometry, read_task(task_path, label_names=store.label_names or None)
        model = StudiedClassifier(
            name=Path(store.index.origin).name or store_path.resolve().name,
            sha256=store.fingerprint,
            layers=geometry.layers,
            heads=geometry.heads,
            width=geometry.width,
        )
        judged = StudiedTask(name=Path(task.path).name, sha256=task.sha256, examples=len(task), largest_class=task.majority)
        ranking = None if importance_task is None else read_task(importance_task, label_names=store.label_names or None)
        if out is not None and out.exists():
            study = read_study(out, Study)
            ranked = study.importance.task_sha256 if ranking is None else ranking.sha256
            if (study.model, study.task, study.importance.task_sha256) != (model, judged, ranked):
                what = f"a study of {study.name}, of another model, task or importance task"
                raise CalibrationError(what, path=out, remedy="choose another file")
        elif ranking is None:
            raise CalibrationError("no examples to rank the shards by", path=task.path, remedy="give --importance-task FILE")
        else:
            study = Study(tool=TOOL, model=model, task=judged, importance=_ranked(store, ranking, task), answers={})
            if out is not None:
                write_study(out, study)
        return measure(study, _evaluator(store, task), out=out, progress=progress)


def _ranked(store: ShardStore, ranking: Task, judged: Task) -> ImportanceOrder:
    importance = measure_importance(_evaluator(store, ranking), ranking)
    return ImportanceOrder(
        order=importance.order,
        task=importance.task,
        task_sha256=importance.task_sha256,
        examples=importance.examples,
        shared=ranking.shared_texts(judged),
    )


def _evaluator(store: ShardStore, task: Task) -> Evaluator:
    tokens = store.tokenizer().encode(task.texts, store.configuration.positions)
    encoder = ElasticEncoder(store.configuration, store.resident())
    return Evaluator(encoder, store, tokens, task.labels.tolist())
