"""Tokenisers of Hugging Face folders: text to source tokens and target tokens to text, with the marks of languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from simnmt.base.errors import describe_error
from simnmt.base.files import check_model_folder
from simnmt.base.suggestions import did_you_mean
from simnmt.nmt.architecture import Architecture, LlamaArchitecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.pretrained_config import model_path, quiet_transformers, read_pretrained
from simnmt.nmt.source_lines import BLANK
from simnmt.nmt.subwords import UNKNOWN, until_end

PROMPT = "Translate from {source} to {target}.\n{source}: {text}\n{target}:"
"""The prompt of a decoder-only model that is given none. A prompt may also name neither language."""
_FOLDER = "copy the folder again, with the files of its tokeniser"


@dataclass(frozen=True, slots=True)
class Languages:
    """What a text is translated from and to, for models that read it beside the text."""

    source: str | None = None
    """Language of the source as the model writes it, such as deu_Latn (NLLB), de (M2M100) or de_DE (mBART)."""
    target: str | None = None

    @property
    def given(self) -> bool:
        return (self.source, self.target) != (None, None)


class PretrainedTokenizer:
    """The tokeniser of a Hugging Face folder, with the methods of `Subwords`."""

    language: int | None = None
    """The token of the language with which every target begins; None: as the model begins them."""
    after_start = False
    """Whether that token comes after the decoder's start token, not in its place."""

    def __init__(self, tokenizer: Any, unk: int, prefix: str = "") -> None:
        """`tokenizer`: of `transformers`; `unk`: its token of unknown words; `prefix`: before each source, as `>>deu<< `."""
        self._tokenizer, self._prefix = tokenizer, prefix
        codes = _codes(tokenizer)
        # Of M2M100, `transformers` counts the languages neither as special tokens nor in the length.
        self.size = max(len(tokenizer), *(number + 1 for number in codes.values()), 0)
        self._marks = {*tokenizer.all_special_ids, *codes.values()}
        self.eos: int = tokenizer.eos_token_id
        self.unk = unk

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text with the model's marks; none for a blank text."""
        with quiet_transformers():  # it warns of texts longer than the model takes, which are cut later
            return [list(self._tokenizer(self._prefix + text)["input_ids"]) if text.strip() else [] for text in texts]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        return [self._text(until_end(tokens, self.eos)) for tokens in sentences]

    def _text(self, tokens: Sequence[int]) -> str:
        texts = list[str]()
        for is_unknown, run in groupby(tokens, lambda token: token == self.unk):
            if is_unknown:
                texts += [UNKNOWN for _ in run]
            elif known := [token for token in run if self._is_text(token)]:
                texts.append(self._tokenizer.decode(known, clean_up_tokenization_spaces=False).strip())
        return " ".join(filter(None, texts))

    def cut(self, text: str) -> list[str]:
        pieces: list[str] = self._tokenizer.tokenize(self._prefix + text)
        return pieces

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [str(self._tokenizer.convert_ids_to_tokens(token)) if self._is_text(token) else "" for token in tokens]

    def _is_text(self, token: int) -> bool:
        return token < self.size and token not in self._marks


class PromptTokenizer(PretrainedTokenizer):
    """The tokeniser of a decoder-only model: a text becomes a prompt."""

    def __init__(self, tokenizer: Any, prompt: str) -> None:
        """`prompt`: with `{text}` where the text goes."""
        super().__init__(tokenizer, -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)
        self._before, self._after = prompt.split("{text}")

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        texts = list(texts)
        prompts = super().encode(self._before + text.strip() + self._after for text in texts)
        # Some tokenisers end every text with the end mark, which a prompt does not have.
        ids = [prompt[: len(prompt) - (prompt[-1] == self.eos)] for prompt in prompts]
        return [prompt if text.strip() else [] for prompt, text in zip(ids, texts, strict=True)]


def is_pretrained(folder: Path) -> bool:
    """Return whether a folder or a Hugging Face id holds a model of Hugging Face, not one that `simnmt nmt train` wrote."""
    path = Path(model_path(str(folder)))
    return (path / "config.json").is_file() and not (path / "architecture.json").is_file()


def newline_tokens(folder: Path) -> frozenset[int]:
    """Return the tokens of a folder's tokeniser that hold a line break; none without a tokeniser."""
    if not any(folder.glob("*tokenizer*")):
        return frozenset()
    tokenizer = _tokenizer_in(folder)
    # As byte pairs and byte fallbacks write it; a letter may look the same.
    marks = [number for piece, number in tokenizer.get_vocab().items() if "Ċ" in piece or piece == "<0x0A>" or "\n" in piece]
    return frozenset(number for number in marks if "\n" in tokenizer.decode([number]))


def open_tokenizer(
    folder: Path, architecture: Architecture, languages: Languages, prompt: str | None = None
) -> PretrainedTokenizer:
    """Return the tokeniser of a Hugging Face folder or id.

    `prompt`: of a decoder-only model, with `{text}`, and `{source}` and `{target}` for the languages; None: `PROMPT`. Raises
    `NmtError` for a damaged folder, for languages that are missing, unknown or of no use to the model, and for such a prompt.
    """
    path = Path(model_path(str(folder))).absolute()
    hf, unk = _tokenizer_in(path), architecture.unk_token
    tokenizer: PretrainedTokenizer
    if isinstance(architecture, LlamaArchitecture):
        tokenizer = PromptTokenizer(hf, _prompt_between(languages, PROMPT if prompt is None else prompt, path))
    elif architecture.multilingual:
        codes = _codes(hf)
        example = next((code for code in ("deu_Latn", "de_DE", "de") if code in codes), next(iter(codes), "de"))
        for option, language in (("--src-lang", languages.source), ("--tgt-lang", languages.target)):
            if language is None:  # the tokeniser's default is English, whatever the text is
                what = f"a model of {len(codes):,} languages, and {option} is not given"
                raise NmtError(what, path=path, remedy=f"give {option}, such as {example}")
            _check_language(option, language, list(codes), path)
        hf.src_lang = languages.source
        tokenizer = PretrainedTokenizer(hf, unk)
        tokenizer.language = codes[str(languages.target)]
        # The first mBART starts the target with the language itself; later models start it with the end mark.
        tokenizer.after_start = not type(hf).__name__.startswith("MBartTokenizer")
    else:
        prefix = ""
        if languages.source is not None:
            raise NmtError("a model of one source language", path=path, remedy="leave --src-lang out")
        if languages.target is not None:
            _check_language(
                "--tgt-lang", languages.target, [code[2:-2] for code in getattr(hf, "supported_language_codes", [])], path
            )
            prefix = f">>{languages.target}<< "  # the mark with which models of several targets begin a source
        tokenizer = PretrainedTokenizer(hf, unk, prefix)
    if tokenizer.size > architecture.tgt_vocab:
        what = f"no usable tokeniser: {tokenizer.size:,} tokens, but a model of {architecture.tgt_vocab:,}"
        raise NmtError(what, path=path, remedy=_FOLDER)
    if not any(piece.strip(BLANK) for token in range(tokenizer.size) for piece in tokenizer.pieces([token])):
        raise NmtError("no usable tokeniser: it has no token but marks", path=path, remedy=_FOLDER)
    return tokenizer


def _prompt_between(languages: Languages, prompt: str, path: Path) -> str:
    for option, name, language in (("--src-lang", "{source}", languages.source), ("--tgt-lang", "{target}", languages.target)):
        if language is None and name in prompt:
            what = f"the prompt names {name}, and {option} is not given"
            raise NmtError(what, path=path, remedy=f"give {option}, such as German, or another --prompt")
        prompt = prompt.replace(name, language or "")
    if prompt.count("{text}") != 1:
        raise NmtError("the prompt does not have {text} once, where the text goes", remedy="write it once into --prompt")
    return prompt


def _tokenizer_in(path: Path) -> Any:
    check_model_folder(path)
    try:
        tokenizer = read_pretrained("AutoTokenizer", path)
    except Exception as error:  # each library below has its own
        raise NmtError(f"no usable tokeniser: {describe_error(error)}", path=path, remedy=_FOLDER) from None
    if tokenizer.eos_token_id is None:
        raise NmtError("no usable tokeniser: it has no end mark", path=path, remedy=_FOLDER)
    return tokenizer


def _check_language(option: str, language: str, codes: Sequence[str], path: Path) -> None:
    if language not in codes:
        remedy = did_you_mean(language, codes) if codes else "leave it out: the model has one target language"
        raise NmtError(f"{option} {language} is no language of this model", path=path, remedy=remedy)


def _codes(tokenizer: Any) -> dict[str, int]:
    """Return the token of each language by its code: de_DE, deu_Latn, and de for the token `__de__`."""
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    marks = {getattr(tokenizer, f"{name}_token", None) for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
    specials = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    return {token: number for token, number in specials if token not in marks}
