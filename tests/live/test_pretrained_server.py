"""Folders of Hugging Face in a live engine: their own tokenisers, and the texts that `nmt translate` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.live.engine import EngineSettings, TextCodec, load_model
from simnmt.nmt.pretrained_tokenizer import Languages
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.translation import Translator
from tests.live.live_services import Services, ask
from tests.nmt.pretrained_folders import FOLDERS, text

GIVEN = {"opus": {}, "nllb": {"src_lang": "deu_Latn", "tgt_lang": "eng_Latn"}}
LINES = text("de")[:4]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name in GIVEN:
        FOLDERS[name](place / name)
    return place


def settings(folder: Path, backend: str = "torch", **languages: str) -> EngineSettings:
    return EngineSettings(str(folder), backend, threads=1, max_len=12, **languages)  # type: ignore[arg-type]


def translated(folder: Path, given: dict[str, str]) -> list[str]:
    """What `nmt translate` gives."""
    languages = Languages(given.get("src_lang"), given.get("tgt_lang"))
    translations = Translator.load(folder, languages=languages, max_len=12).translate(LINES)
    return [translation.text for translation in translations]


@pytest.mark.parametrize(("name", "backend"), [("opus", "torch"), ("nllb", "torch"), ("opus", "ctranslate2")])
def test_an_engine_gives_the_texts_of_nmt_translate(folders: Path, name: str, backend: str) -> None:
    engine = settings(folders / name, backend, **GIVEN[name])
    model = load_model(engine)
    codec = TextCodec(engine, model.engine)
    decoder = model.new_decoder(engine.batching)
    texts = {}
    lines = [codec.line(text) for text in LINES]
    for number, line in enumerate(lines):
        decoder.arrive(number, DecodeRequest(line.ids, max_len=line.most))
    decoder.batcher.close()
    while decoder.busy:
        texts.update({number: codec.text(lines[number], output) for number, output in decoder.act()[1]})
    assert codec.has_subwords
    assert [texts[number] for number in range(len(LINES))] == translated(folders / name, GIVEN[name])


@pytest.mark.deep  # its process imports torch and transformers, which takes longer than the rest of this file
def test_a_server_translates_with_the_folders_tokeniser(services: Services, folders: Path) -> None:
    server = services.server(settings(folders / "nllb", **GIVEN["nllb"]))
    answers = services.translate(server.front.service.url, *map(ask, LINES))
    assert [answer.answer.texts[0] for answer in answers] == translated(folders / "nllb", GIVEN["nllb"])  # type: ignore[union-attr]
