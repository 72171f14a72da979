"""Memory that the model takes, and the time in which a fresh process loads it."""

from __future__ import annotations

import gc
import json
import multiprocessing
import tempfile
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import psutil

from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.calibrate.settings import Settings
from simnmt.nmt.architecture import FAMILIES
from simnmt.nmt.engine import BACKENDS, Work, load_engine
from simnmt.profile.blocks import MemoryBlock

LOADS, QUICK_LOADS = 5, 3
MOST_LOAD_S = 600.0
"""Longest time of a process that loads the model."""
FIRST = Work(src_len=8, tgt_len=2)
"""The translation with which a load ends: the first one of a process takes longer than later ones."""
SMALL: dict[str, Any] = {
    **dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "source_layers"), 1),
    **dict.fromkeys(("hidden", "embedding", "source_hidden", "d_model", "ffn"), 16),
    **dict.fromkeys(("src_vocab", "tgt_vocab", "vocab"), 64),
    "heads": 2,
    "stack": [],
    "attention_width": None,
    "pad_token": 0,
    "unk_token": 1,
    "start_token": 2,
    "eos_token": 3,
}
"""Sizes of a model that takes next to no memory, so that the memory of its process is that of the engine."""


def loading_cases(bench: Bench) -> Cases:
    """Return loads of the model, the first of which is not counted: it brings the model's files into the page cache."""
    settings, account = bench.settings, bench.engine.account
    if account.device != "cpu":
        bench.remarks.append("no model_memory: loading is measured on the CPU alone")
        return {}
    small = {name: SMALL.get(name, value) for name, value in account.architecture.items()}
    return {"load": Case(partial(load_in_fresh_process, settings, small))}


def rounds(bench: Bench) -> int:
    """Return the number of loads: random weights are drawn, in the same time in each process."""
    if bench.engine.account.weights == "random":
        return 1
    return QUICK_LOADS if bench.quick else LOADS


def load_in_fresh_process(settings: Settings, small: dict[str, Any]) -> dict[str, Any]:
    """Load the model in a new process; return `seconds` and `resident_bytes`, or `seconds` None and a `fault`.

    The process begins with the engine's libraries, and a small model of the same architecture has used them.
    """
    context = multiprocessing.get_context("forkserver")
    of_family = ["transformers.models.auto.modeling_auto"] if small["kind"] in FAMILIES else []
    context.set_forkserver_preload([BACKENDS[settings.backend].partition(":")[0], *of_family])
    ours, theirs = context.Pipe()
    process = context.Process(target=report_load, args=(settings, small, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(MOST_LOAD_S):
            return {"seconds": None, "fault": f"the process that loaded the model did not end within {MOST_LOAD_S:g} s"}
        load: dict[str, Any] = ours.recv()
        return load
    except EOFError:
        process.join()
        return {"seconds": None, "fault": f"the process that loaded the model ended with status {process.exitcode}"}
    finally:
        ours.close()
        process.kill()
        process.join()


def report_load(settings: Settings, small: dict[str, Any], connection: Connection) -> None:
    """Load the small model, then the model; send what the model took."""
    options = {key: getattr(settings, key) for key in ("backend", "device", "compute_type", "threads", "seed")}
    try:
        with tempfile.TemporaryDirectory(prefix="simnmt-small-model-") as folder:
            path = Path(folder) / "small.json"
            path.write_text(json.dumps(small), encoding="utf-8")
            load_engine(str(path), **options).run(FIRST)
        gc.collect()
        process = psutil.Process()
        before, begin_s = process.memory_full_info().uss, perf_counter()
        engine = load_engine(settings.model, **options)
        engine.run(FIRST)
        seconds = perf_counter() - begin_s
        connection.send({"seconds": seconds, "resident_bytes": process.memory_full_info().uss - before})
    except Exception as error:  # whatever fails here, the other parts of the profile are measured already
        connection.send({"seconds": None, "fault": f"{type(error).__name__}: {error}"})


def fit_loads(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `model_memory`: medians of the loads."""
    rows = counted(frame, every=True)
    if rows.empty:
        bench.remarks.append(f"no model_memory: {frame['fault'].iloc[0]}")
        return {"model_memory": None}
    resident_bytes, load_s = max(int(rows["resident_bytes"].median()), 0), float(rows["seconds"].median())
    return {"model_memory": MemoryBlock(kind="measured", resident_bytes=resident_bytes, load_s=load_s)}


PARTS = (Part("model_memory", ("model_memory",), loading_cases, fit_loads, 9, rounds=rounds, apart=lambda settings: True),)
