"""Bundles, shard stores and checkpoints that somebody changed and signed again: used, or refused in one line."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from simnmt.nmt.checkpoint import WEIGHTS_FILE, save_checkpoint
from simnmt.nmt.models import load_model
from simnmt.nmt.vocabulary.bundle_file import BundleFile, read_bundle, write_bundle
from simnmt.nmt.vocabulary.cluster_bundle import load_clusters, save_clusters
from simnmt.streaming.store import ShardStore, write_store
from tests.campaigns.harness import mutate, mutate_bytes, run_cases
from tests.nmt.made_subsets import trained_clusters
from tests.nmt.tiny import GRU, lively
from tests.streaming.made_encoder import dequantised, random_weights


def mutated_header(content: bytes, generator: random.Random) -> bytes:
    """Return a safetensors file with one change in its header, whose stated length fits."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    changed = json.dumps(mutate(header, generator)).encode()
    return struct.pack("<Q", len(changed)) + changed + content[8 + length :]


def mutated_tensors(tensors: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """Return the tensors with one of another type or shape, or with a value that makes no sense."""
    changed = dict(tensors)
    name = generator.choice(sorted(changed))
    tensor = changed[name]
    change = generator.choice(["type", "shape", "value", "remove", "empty"])
    if change == "type":
        changed[name] = tensor.to(generator.choice([torch.float64, torch.int32, torch.uint8, torch.bool, torch.float16]))
    elif change == "shape":
        changed[name] = tensor.reshape(-1)[: max(1, tensor.numel() // 2)].clone()
    elif change == "remove":
        del changed[name]
    elif change == "empty":
        changed[name] = tensor.reshape(-1)[:0].clone()
    else:
        changed[name] = tensor.clone()
        odd = [float("nan"), float("inf")] if tensor.is_floating_point() else [-1, 2**30]
        changed[name].reshape(-1)[0] = generator.choice(odd)
    return changed


def test_a_changed_bundle_is_used_or_refused_in_one_line(tmp_path: Path) -> None:
    save_clusters(trained_clusters(3, 5), tmp_path / "whole", lively("gru"), "tiny")
    whole: BundleFile = read_bundle(tmp_path / "whole", {"clusters": lambda file: file})
    content, path = (tmp_path / "whole").read_bytes(), tmp_path / "odd"

    def check(generator: random.Random) -> None:
        change = generator.choice(["note", "note", "tensors", "header", "bytes"])
        if change == "note":
            write_bundle(path, whole.kind, mutate(whole.note, generator), whole.tensors)
        elif change == "tensors":
            write_bundle(path, whole.kind, whole.note, mutated_tensors(whole.tensors, generator))
        else:
            path.write_bytes((mutated_header if change == "header" else mutate_bytes)(content, generator))
        clusters = load_clusters(path, lively("gru"))
        assert sum(clusters.memory.values()) > 0
        assert torch.isfinite(clusters.centroids.points).all(), "centroids are not finite"

    run_cases("bundle", 100, check)


def test_a_changed_store_is_used_or_refused_in_one_line(tmp_path: Path) -> None:
    write_store(replace(random_weights(layers=2), files={"tokens.json": b"{}"}, label_names=("no", "yes")), tmp_path / "store")
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir() if path.is_file()}
    index = json.loads(files["store.json"])

    def check(generator: random.Random) -> None:
        folder = tmp_path / "odd"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "store", folder)
        changed = index
        if generator.random() < 0.4:
            name = generator.choice(sorted(set(files) - {"store.json"}))
            content = (mutated_header if name.endswith("safetensors") else mutate_bytes)(files[name], generator)
            (folder / name).write_bytes(content)
            if name.endswith("safetensors"):
                changed = index | {"resident_sha256": hashlib.sha256(content).hexdigest()}
        else:
            changed = mutate(index, generator)
        (folder / "store.json").write_text(json.dumps(changed))
        with ShardStore(folder) as store:
            store.resident()
            store.beside()
            store.check()
            for record in store.records[:3]:
                dequantised(store.read(record))

    run_cases("store", 100, check)


def test_a_changed_checkpoint_is_used_or_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_checkpoint(folder, lively("gru"), GRU)
    content = (folder / WEIGHTS_FILE).read_bytes()

    def check(generator: random.Random) -> None:
        change = mutated_header if generator.random() < 0.7 else mutate_bytes
        (folder / WEIGHTS_FILE).write_bytes(change(content, generator))
        load_model(str(folder))

    run_cases("checkpoint", 100, check)
