"""Folders of Hugging Face of every kind: decoded as `transformers` decodes them, and refused if damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from simnmt.batching import immediate, mini, top_up
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import load_model
from simnmt.nmt.pretrained_config import quiet_transformers
from simnmt.nmt.pretrained_tokenizer import Languages
from simnmt.nmt.step_model import pad
from simnmt.nmt.transformer_model import TransformerModel
from simnmt.nmt.translation import Translator
from tests.campaigns.harness import thinned
from tests.nmt.pretrained_folders import FOLDERS, LANGUAGES, opus_folder, text
from tests.nmt.tiny import together


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of each kind."""
    place = tmp_path_factory.mktemp("pretrained")
    for name, make in FOLDERS.items():
        make(place / name)
    return place


JOINED = [("opus", 3), ("nllb", 1)]
"""One kind with each way of counting positions, with a prefix of the target and without."""


def languages(name: str) -> Languages:
    return Languages(*LANGUAGES.get(name, (None, None)))


def translator(folders: Path, name: str, **options: Any) -> Translator:
    return Translator.load(folders / name, languages=languages(name), **options)


@cache
def model_in(folders: Path, name: str) -> TransformerModel:
    model = load_model(str(folders / name)).model
    assert isinstance(model, TransformerModel)
    return model


def random_sources(model: TransformerModel) -> tuple[list[list[int]], torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    sources = [[*torch.randint(5, 90, (length,), generator=draw).tolist(), model.eos_token] for length in (4, 9, 6, 13)]
    return sources, *pad(sources, model.pad_token)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_translates_as_transformers_itself_does(folders: Path, name: str) -> None:
    """With its tokeniser, from language to language, greedily; sentences end or reach the same limit."""
    from transformers import AutoTokenizer

    lines = text("de")[:3]
    ours = translator(folders, name, max_len=15).translate(lines)
    hf = model_in(folders, name).hf
    forced: dict[str, int] = {}
    with quiet_transformers(), pytest.warns() if name == "opus" else torch.no_grad():
        tokenizer = AutoTokenizer.from_pretrained(folders / name)
    if name in LANGUAGES:
        source, target = LANGUAGES[name]
        tokenizer.src_lang = source
        number = tokenizer.convert_tokens_to_ids(f"__{target}__" if name == "m2m100" else target)
        forced = {"decoder_start_token_id": number} if name == "mbart" else {"forced_bos_token_id": number}
    limit, begin = (15, 1) if name in ("opus", "mbart") else (16, 2)
    for line, translation in zip(lines, ours, strict=True):
        batch = tokenizer(line, return_tensors="pt")
        with quiet_transformers():
            (tokens,) = hf.generate(
                **batch, max_new_tokens=limit, num_beams=1, do_sample=False, forced_eos_token_id=None,
                suppress_tokens=[hf.config.pad_token_id], **forced,
            ).tolist()  # fmt: skip
        body = [token for token in tokens[begin:] if token not in (hf.config.eos_token_id, hf.config.pad_token_id)]
        assert translation.tgt_len == len(body)
        assert translation.src_len == batch["input_ids"].shape[1]
        expected = tokenizer.decode(body, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if tokenizer.unk_token_id not in body and name != "m2m100":  # whose languages `transformers` writes as text
            assert translation.text == expected.strip()


@pytest.mark.parametrize(("name", "beam"), thinned(product(FOLDERS, (1, 3)), JOINED))
def test_sentences_that_join_others_translate_as_they_do_alone(folders: Path, name: str, beam: int) -> None:
    """The prefix of a language is fed to the rows that join, whatever the others do; positions count from each row's own."""
    lines, options = text("de")[:9], {"max_len": 25, "beam": beam}
    alone = translator(folders, name, batching=mini(1), **options).translate(lines)
    joined = translator(folders, name, batching=top_up(4, immediate(4)), **options).translate(lines)
    assert [one.text for one in joined] == [one.text for one in alone]
    assert len({one.text for one in alone}) > 1
    assert [one.score for one in joined] == pytest.approx([one.score for one in alone], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", FOLDERS)
def test_ctranslate2_gives_the_tokens_of_torch(folders: Path, name: str) -> None:
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

    loaded = load_model(str(folders / name))
    alone, _, _ = random_sources(loaded.model)
    engine = CTranslate2Engine(loaded, "cpu", 1, "float32", 0)
    theirs = [one.tokens for one in engine.translate(alone, beam=1, forced_lens=[30] * len(alone))]
    assert theirs == [one.tokens for one in together(loaded.model, alone, forced_len=30)]
    lens = [30 - 4 * number for number in range(len(alone))]
    forced = engine.translate(alone, beam=1, forced_lens=lens)
    assert [one.tokens for one in forced] == [tokens[:length] for tokens, length in zip(theirs, lens, strict=True)]


def test_a_marian_model_of_several_languages_is_told_the_target(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus", ("fra", "deu"))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    plain, marked = (Translator.load(folder, languages=Languages(target=code)).encode(["Ba ."]) for code in (None, "deu"))
    assert marked == [[vocabulary[">>deu<<"], *plain[0]]]
    with pytest.raises(NmtError, match="--tgt-lang dev"):
        Translator.load(folder, languages=Languages(target="dev"))


@pytest.mark.parametrize(
    ("name", "given", "option"),
    [
        ("nllb", Languages(), "--src-lang"),
        ("nllb", Languages("deu_Latn", "eng_Ltn"), "--tgt-lang eng_Ltn"),
        ("opus", Languages(None, "en"), "--tgt-lang en"),
    ],
)
def test_languages_that_are_missing_or_useless_are_refused(folders: Path, name: str, given: Languages, option: str) -> None:
    with pytest.raises(NmtError, match=option):
        Translator.load(folders / name, languages=given)


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def with_a_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(
        weights | {"model.decoder.layers.7.fc1.weight": torch.zeros(2, 2)}, folder / "model.safetensors", {"format": "pt"}
    )


def with_an_empty_tokeniser(folder: Path) -> None:
    Tokenizer(BPE()).save(str(folder / "tokenizer.json"))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no tokeniser": ("nllb", without("tokenizer.json", "tokenizer_config.json")),
    "no vocabulary": ("opus", without("vocab.json")),
    "the tokeniser of another model": ("mbart", with_an_empty_tokeniser),
    "a tokeniser of marks alone": ("nllb", with_an_empty_tokeniser),
    "a tokeniser of marks and blanks": ("mbart50", with_an_empty_tokeniser),
    "an unknown layer": ("nllb", with_a_layer),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_without_a_warning_beside(
    folders: Path, tmp_path: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name, hurt = DAMAGES[damage]
    folder = Path(shutil.copytree(folders / name, tmp_path / name))
    hurt(folder)
    capfd.readouterr()
    with pytest.raises(NmtError, match=str(folder)):
        Translator.load(folder, languages=languages(name))
    assert capfd.readouterr() == ("", "")
