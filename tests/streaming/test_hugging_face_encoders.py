"""Classifiers of transformers from a local folder answer as they do there; what cannot be cut is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.nmt.pretrained_config import quiet_transformers
from simnmt.streaming.encoder_folder import load_encoder
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.store import ShardStore, write_store
from simnmt.streaming.texts import TOKENIZER_FILE, HuggingFaceTokenizer
from tests.streaming.made_encoder import logits_of

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 60,
    "max_position_embeddings": 20,
    "num_labels": 3,
    "initializer_range": 0.3,
}


def saved(folder: Path, **changed: Any) -> Any:
    import transformers

    with torch.random.fork_rng([]), quiet_transformers():
        torch.manual_seed(5)
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**(SIZES | changed))).eval()
        model.save_pretrained(folder)
    return model


def tokens_of(padding: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    mask = torch.arange(9)[None] < torch.tensor([9, 4, 2])[:, None]
    return torch.where(mask, torch.randint(3, 60, (3, 9), generator=generator), padding), mask


def test_the_full_model_answers_as_in_transformers(tmp_path: Path) -> None:
    """STI-02: (N, M) at 32 bits is the original model."""
    model, weights = saved(tmp_path), load_encoder(tmp_path)
    tokens, mask = tokens_of(weights.configuration.padding_token)
    with torch.inference_mode():
        expected = model(tokens, attention_mask=mask.long()).logits
    assert torch.allclose(logits_of(weights, tokens, mask), expected, atol=1e-5) and float(expected.std()) > 0.01
    assert (weights.configuration.kind, weights.random) == ("bert", False)


def test_a_text_may_be_as_long_as_the_model_has_positions(tmp_path: Path) -> None:
    model, loaded = saved(tmp_path / "model"), load_encoder(tmp_path / "model")
    tokens = torch.randint(3, 60, (2, 20), generator=torch.Generator().manual_seed(4))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    with torch.inference_mode():
        expected = model(tokens, attention_mask=mask.long()).logits
    assert torch.allclose(logits_of(loaded, tokens, mask), expected, atol=1e-5)
    write_store(loaded, tmp_path / "store")
    with ShardStore(tmp_path / "store") as store:
        StiSettings(lengths=(20,)).within(store.configuration.positions)
        with pytest.raises(CalibrationError, match="21"):
            StiSettings(lengths=(21,)).within(store.configuration.positions)


def test_fewer_slices_are_the_model_with_heads_and_neurons_silenced(tmp_path: Path) -> None:
    model, weights = saved(tmp_path), load_encoder(tmp_path)
    tokens, mask = tokens_of(0)
    for layer in model.bert.encoder.layer:
        for part in (layer.attention.output.dense.weight, layer.output.dense.weight):
            size = part.shape[1] // 4
            part.data[:, size : 2 * size] = 0.0
            part.data[:, 3 * size :] = 0.0
    with torch.inference_mode():
        expected = model(tokens, attention_mask=mask.long()).logits
    assert torch.allclose(logits_of(weights, tokens, mask, slices=[0, 2]), expected, atol=1e-5)


def test_its_own_tokenizer_and_pairs_of_texts(tmp_path: Path) -> None:
    """The second text of a pair has tokens of the second type, as in fine-tuning."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    model = saved(tmp_path, vocab_size=len(words), id2label={0: "no", 1: "yes", 2: "both"})
    loaded = load_encoder(tmp_path)
    assert loaded.label_names == ("no", "yes", "both")
    tokenizer = HuggingFaceTokenizer(loaded.files[TOKENIZER_FILE])
    tokens = tokenizer.encode([("good film", "bad film")], 16)
    assert tokens == [[2, 6, 8, 3, 7, 8, 3]]
    ids = torch.tensor(tokens)
    with torch.inference_mode():
        expected = model(ids, token_type_ids=torch.tensor([[0, 0, 0, 0, 1, 1, 1]])).logits
    assert torch.allclose(logits_of(loaded, ids, torch.ones_like(ids, dtype=torch.bool)), expected, atol=1e-5)
    assert tokenizer.encode(["good bad good bad"], 4) == [[2, 6, 7, 3]]


@pytest.mark.parametrize("change", [{"hidden_act": "silu"}, {"is_decoder": True}, {"num_labels": 1}, {"model_type": "gpt2"}])
def test_a_model_that_cannot_be_cut_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": None, "label2id": None} | change))
    with pytest.raises(StreamingError) as caught:
        load_encoder(tmp_path)
    assert caught.value.path == str(tmp_path)
