"""A decoder-only model, and its decoder in slots: logits of `transformers`, company, limits, lines, what is refused."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.batching import mini
from simnmt.batching.slots import SlotLimits
from simnmt.nmt.architecture import LlamaArchitecture
from simnmt.nmt.engine import Work, load_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.llama_model import LlamaModel, TextPart
from simnmt.nmt.models import load_any_model, load_model
from simnmt.nmt.pretrained_tokenizer import Languages, open_tokenizer
from simnmt.nmt.sentence_decoder import Admit, DecodeRequest, Hypothesis
from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.training.recipe import recipe_for
from simnmt.nmt.translation import Translator
from tests.nmt.pretrained_folders import llama_folder

TINY = LlamaArchitecture(
    kind="llama", layers=2, d_model=16, heads=4, kv_heads=2, head_width=6, ffn=24, vocab=60, max_positions=64
)
PROMPTS = [[5, 9, 3], [7], [*range(10, 31)], [8, 8, 40, 2, 17], [33, 3]]


@cache
def lively() -> LlamaModel:
    """A model whose outputs differ by prompt, in float64: no rounding decides between two tokens."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(4)
        model = LlamaModel(TINY).eval().double()
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.5)
    return model


def decoded(limits: SlotLimits, requests: list[DecodeRequest], model: LlamaModel | None = None) -> list[Hypothesis]:
    """The outputs of requests that arrive one an act."""
    decoder, done = SlotDecoder(model or lively(), limits), dict[int, Hypothesis]()
    arriving = iter(enumerate(requests))
    while len(done) < len(requests):
        if (arrival := next(arriving, None)) is not None:
            decoder.arrive(*arrival)
        done.update(decoder.act()[1])
        assert decoder.active <= limits.slots
    assert not decoder.busy
    return [done[key] for key in range(len(requests))]


@torch.inference_mode()
def test_logits_are_those_of_transformers_in_whatever_parts_a_prompt_is_read() -> None:
    model, text = lively(), torch.randint(0, 60, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    expected, room, begin, other = model.hf(torch.tensor([text])).logits[0], model.room(40), 0, model.room(9)
    for end in (13, 14, 15, 39, 40):
        parts = [TextPart(room, begin, text[begin:end], True), TextPart(other, 0, text[:9], False)]
        torch.testing.assert_close(model(parts)[0], expected[end - 1])
        begin = end


def test_outputs_are_those_of_transformers_and_do_not_depend_on_company_or_chunks() -> None:
    model, expected = lively(), []
    for prompt in PROMPTS:
        whole = model.hf.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=3)[0].tolist()
        output = whole[len(prompt) :]
        expected.append(tuple(output[:-1] if output[-1] == 3 else output))
    requests = [DecodeRequest(prompt, max_len=20) for prompt in PROMPTS]
    for limits in (SlotLimits(1, 64), SlotLimits(2, 3), SlotLimits(5, 7), SlotLimits(3, 64)):
        assert [hypothesis.tokens for hypothesis in decoded(limits, requests)] == expected
    assert len(set(expected)) == len(PROMPTS)


def test_forced_lengths_are_met_without_the_end() -> None:
    requests = [DecodeRequest(prompt, forced_len=length) for prompt, length in zip(PROMPTS, (1, 30, 4, 9, 25), strict=True)]
    outputs = decoded(SlotLimits(2, 8), requests)
    assert [(len(output.tokens), output.steps) for output in outputs] == [(length, length) for length in (1, 30, 4, 9, 25)]
    assert all(3 not in output.tokens for output in outputs)


def test_the_context_limits_an_output_and_refuses_what_cannot_fit_alone() -> None:
    decoder, context = SlotDecoder(lively(), SlotLimits(2, 64, context=24)), 24
    decoder.arrive(0, DecodeRequest([5] * 20, max_len=50))
    decoder.arrive(1, DecodeRequest([5] * 24))
    decoder.arrive(2, DecodeRequest([5] * 4, forced_len=21))
    decoder.arrive(3, DecodeRequest([5] * 4, forced_len=20))
    done = dict[int, Hypothesis]()
    for _ in range(2):
        with pytest.raises(NmtError, match=f"{context} together"):
            decoder.act()
    assert [decoder.holds(key) for key in range(4)] == [True, False, False, True]
    assert decoder.act()[0] == Admit((0, 3))
    while decoder.busy:
        done.update(decoder.act()[1])
    assert len(done[0].tokens) <= 4
    assert len(done[3].tokens) == 20


def test_a_prompt_waits_in_order_is_withdrawn_and_gives_its_first_token_when_it_is_read() -> None:
    decoder = SlotDecoder(lively(), SlotLimits(1, 4))
    for key in range(3):
        decoder.arrive(key, DecodeRequest([5] * 10, forced_len=2))
    assert decoder.act()[0] == Admit((0,))
    assert decoder.withdraw(1)
    assert not decoder.withdraw(0)
    firsts = []
    for _ in range(4):
        decoder.act()
        firsts.append(tuple(decoder.first_tokens))
    assert firsts == [(), (), (0,), ()]
    assert decoder.act()[0] == Admit((2,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama_folder(tmp_path_factory.mktemp("llama") / "model")


def test_a_folder_is_loaded_with_its_tokens_of_line_breaks_and_its_prompt(folder: Path) -> None:
    model = load_any_model(str(folder)).model
    assert isinstance(model, LlamaModel)
    tokenizer = open_tokenizer(folder, model.architecture, Languages("Elvish", "English"), "{source}: {text}\n{target}:")
    prompt, empty = tokenizer.encode(["ba be\nbi", " "])
    assert empty == []
    assert tokenizer.decode([prompt]) == ["Elvish: ba be\nbi\nEnglish:"]
    assert prompt[0] == 0
    assert model.newlines
    assert set(prompt) & model.newlines
    for prompt_text, what in (("{text}{text}", "once"), ("Translate", "once"), ("to {target}: {text}", "--tgt-lang")):
        with pytest.raises(NmtError, match=what):
            open_tokenizer(folder, model.architecture, Languages(), prompt_text)


class Scripted(LlamaModel):
    """A model that says the same tokens to every prompt."""

    def __init__(self, output: list[int], newlines: frozenset[int]) -> None:
        super().__init__(TINY, newlines=newlines)
        self.output = output

    def forward(self, parts: Any) -> torch.Tensor:
        """See `LlamaModel`; prompts have a token."""
        logits = torch.zeros(len(parts), 60)
        for row, part in enumerate(parts):
            logits[row, self.output[part.begin]] = 1.0
        return logits


def test_an_output_ends_after_as_many_lines_as_its_source_has() -> None:
    """Line breaks before its first word end no line; a forced output goes on."""
    model = Scripted([9, 9, 20, 21, 9, 22, 9, 23, 3, 24], frozenset([9]))
    requests = [DecodeRequest([1], lines=lines, max_len=9) for lines in (1, 2, 3)] + [DecodeRequest([1], 10)]
    outputs = decoded(SlotLimits(4, 8), requests, model)
    assert [output.tokens for output in outputs[:3]] == [
        (9, 9, 20, 21, 9),
        (9, 9, 20, 21, 9, 22, 9),
        (9, 9, 20, 21, 9, 22, 9, 23),
    ]
    assert [output.steps for output in outputs] == [5, 7, 9, 10]


def test_what_needs_an_encoder_refuses_a_decoder_only_model(folder: Path, tmp_path: Path) -> None:
    architecture = tmp_path / "llama.yaml"
    architecture.write_text(json.dumps(TINY.model_dump()), encoding="utf-8")
    for use in (
        lambda: Translator.load(folder),
        lambda: load_engine(str(architecture), backend="ctranslate2"),
        lambda: recipe_for(str(architecture)),
    ):
        with pytest.raises(NmtError, match=r"decoder-only|no training of kind llama"):
            use()


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ({"model_type": "gpt2"}, "type gpt2"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic"),
        ({"eos_token_id": None}, "eos_token_id"),
        ({"vocab_size": 3}, "weights"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused(folder: Path, tmp_path: Path, marks: dict[str, Any], message: str) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | marks), encoding="utf-8")
    with pytest.raises(NmtError, match=message) as caught:
        load_any_model(str(tmp_path))
    assert caught.value.path == str(tmp_path)


def test_an_engine_times_prompts_and_steps_and_refuses_what_slots_do_not_do(tmp_path: Path) -> None:
    path = tmp_path / "llama.yaml"
    path.write_text(json.dumps(TINY.model_dump()), encoding="utf-8")
    engine = load_engine(str(path))
    timing = engine.run(Work(8, 5, batch=3))
    assert timing.steps_s is not None
    assert timing.encode_s is not None
    assert len(timing.steps_s) == 4
    assert timing.total_s >= timing.encode_s + sum(timing.steps_s) > 0.0
    for batching, beam in ((mini(2), 1), (SlotLimits(2, 8), 2)):
        with pytest.raises(NmtError, match="decoder-only"):
            engine.sentence_decoder(batching, beam)
    for load in (lambda: load_engine(str(path), fused=True), lambda: load_model(str(path))):
        with pytest.raises(NmtError, match="decoder-only"):
            load()
    with pytest.raises(NmtError, match="64 together"):
        engine.run(Work(60, 5))
    with pytest.raises(NmtError, match="slots"):
        load_engine("gru").sentence_decoder(SlotLimits(2, 8), 1)
