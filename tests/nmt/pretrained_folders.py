"""Small random models of every kind that Hugging Face folders hold, each with a tokeniser trained on made-up text."""

from __future__ import annotations

import io
import json
import random
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers import models as tokenizer_models

from simnmt.nmt.pretrained_config import quiet_transformers

SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]


@cache
def text(language: str, lines: int = 300) -> list[str]:
    """Sentences of made-up words, some with capitals and stops."""
    draw = random.Random(language)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(120)]
    return [" ".join(draw.choices(words, k=draw.randint(3, 9))).capitalize() + " ." for _ in range(lines)]


@cache
def spm(language: str, size: int = 150) -> bytes:
    """A sentencepiece model, unigram, as published translation models have."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text(language)), model_writer=model, vocab_size=size, num_threads=1, minloglevel=2
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    """The pieces of a model without its three marks."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]


SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 128,
    "init_std": 0.3,
    "scale_embedding": True,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def save(folder: Path, kind: Any, tokenizer: Any, vocab: int, **marks: int) -> Path:
    """Save a tokeniser with a model whose weights, also those that start as zeros, depend on nothing but its shapes."""
    with torch.random.fork_rng(devices=[]), quiet_transformers(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        model = kind(kind.config_class(**SIZES | {"vocab_size": vocab} | marks)).eval()
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def opus_folder(folder: Path, languages: tuple[str, ...] = ()) -> Path:
    """An OPUS-MT folder: two sentencepiece models and one vocabulary; `languages`: targets of a multilingual one."""
    from transformers import MarianMTModel, MarianTokenizer

    folder.mkdir(parents=True)
    source, target = spm("de"), spm("en")
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    marks = [f">>{language}<<" for language in languages]
    tokens = ["</s>", "<unk>", *dict.fromkeys([*marks, *pieces(source), *pieces(target)]), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = MarianTokenizer(*(str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")))
    pad = len(tokens) - 1
    marks = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    return save(folder, MarianMTModel, tokenizer, len(tokens), **marks)


def nllb_folder(folder: Path) -> Path:
    """An NLLB folder: byte pairs in tokenizer.json, 202 languages."""
    from transformers import M2M100ForConditionalGeneration, NllbTokenizer

    learnt = Tokenizer(tokenizer_models.BPE(unk_token="<unk>"))
    learnt.pre_tokenizer = pre_tokenizers.Metaspace()
    learnt.train_from_iterator(
        text("de") + text("en"), trainers.BpeTrainer(vocab_size=200, special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    )
    model = json.loads(learnt.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = NllbTokenizer(vocab=model["vocab"], merges=merges)
    return save(folder, M2M100ForConditionalGeneration, tokenizer, len(tokenizer) + 2)


def m2m100_folder(folder: Path) -> Path:
    """An M2M100 folder: a sentencepiece model with a vocabulary beside it, 100 languages."""
    from transformers import M2M100ForConditionalGeneration, M2M100Tokenizer

    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(spm("de"))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces(spm("de"))]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}), encoding="utf-8")
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    return save(folder, M2M100ForConditionalGeneration, tokenizer, len(tokenizer) + 108)


def mbart_folder(folder: Path, kind: str = "MBart50Tokenizer") -> Path:
    """An mBART folder, of the first kind with `MBartTokenizer`."""
    import transformers

    unigrams = [(mark, 0.0) for mark in ("<s>", "<pad>", "</s>", "<unk>")]
    unigrams += [(piece, -5.0 - number / 50) for number, piece in enumerate(pieces(spm("de")))]
    tokenizer = getattr(transformers, kind)(vocab=unigrams)
    return save(folder, transformers.MBartForConditionalGeneration, tokenizer, len(tokenizer), forced_eos_token_id=2)


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "opus": opus_folder,
    "nllb": nllb_folder,
    "m2m100": m2m100_folder,
    "mbart50": mbart_folder,
    "mbart": lambda folder: mbart_folder(folder, "MBartTokenizer"),
}
LANGUAGES: dict[str, tuple[str, str]] = {
    "nllb": ("deu_Latn", "eng_Latn"),
    "m2m100": ("de", "en"),
    "mbart50": ("de_DE", "en_XX"),
    "mbart": ("de_DE", "en_XX"),
}


def llama_folder(folder: Path, **marks: Any) -> Path:
    """A decoder-only folder: byte pairs in tokenizer.json, which begin each text with a mark; `marks`: of its config.json."""
    from tokenizers import decoders, processors
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    learnt = Tokenizer(tokenizer_models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    alphabet, specials = pre_tokenizers.ByteLevel.alphabet(), ["<|begin|>", "<|end|>"]
    learnt.train_from_iterator(
        text("de"), trainers.BpeTrainer(vocab_size=400, special_tokens=specials, initial_alphabet=alphabet)
    )
    learnt.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=learnt, bos_token="<|begin|>", eos_token="<|end|>")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 1}
    return save(folder, LlamaForCausalLM, tokenizer, len(tokenizer), **sizes | marks)
