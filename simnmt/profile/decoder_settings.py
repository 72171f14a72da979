"""Options of a decoder, shared by kernels, engine, profile and scenario (XP-03), and the ladder of techniques (SHARP-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration

FREQUENT_WORDS = 8000
"""Number of words whose products of embeddings SHARP-06 keeps if it does not keep all."""


class DecoderOptions(Configuration):
    """Techniques of a decoder of any beam; none by default."""

    fused: bool = False
    """Bias, softmax and search in one pass over the output layer's products (FNI-03, FNI-05)."""
    gemm: Literal["float32", "int16"] | None = None
    """Type of the products (SHARP-05); None: the compute type of the engine."""
    embeddings: Literal["computed", "precomputed", "frequent"] = "computed"
    """Products of embeddings kept for all words, or for the first `frequent_words` words of the vocabulary (SHARP-06)."""
    frequent_words: Annotated[int, Field(ge=1, le=10**9)] = FREQUENT_WORDS
    """Number of words with `embeddings: frequent`; ignored otherwise."""
    attention: Literal["computed", "precomputed"] = "computed"
    """Products of source states computed once per sentence instead of once per step (SHARP-07)."""
    activations: Literal["library", "table", "polynomial"] = "library"
    """Method that computes sigmoid and tanh (SHARP-08)."""
    merge: bool = False
    """True if hypotheses with the same recurrent state share its products (SHARP-09)."""
    candidates: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Number of target words in the candidate list of any sentence (SHARP-02); None: see `vocabulary`."""
    vocabulary: Literal["full", "clustered", "candidates"] = "full"
    """Tokens that the output layer multiplies: all, those of clusters of contexts (FVP-04), or the candidates listed for the
    words of a sentence (SHARP-02). A number of `candidates` implies the last."""

    @model_validator(mode="before")
    @classmethod
    def _list_is_a_vocabulary(cls, options: Any) -> Any:
        if isinstance(options, Mapping) and options.get("candidates") is not None:
            if "vocabulary" not in options:
                return {**options, "vocabulary": "candidates"}
            if options["vocabulary"] in ("full", "clustered"):
                conflict = f"candidates: {options['candidates']} beside vocabulary: {options['vocabulary']}"
                raise ValueError(f"{conflict} contradict each other; leave one of them out")
        return options

    @property
    def exact(self) -> bool:
        """True if every technique is an identity: translations are those of the plain decoder of this beam (XP-03)."""
        return not self.noise and self.vocabulary == "full"

    @property
    def noise(self) -> tuple[str, ...]:
        """The options that may change tokens, so that agreement can be measured (SHARP-10, FVP-08).

        A number of candidates is not among them: it defines the words to choose from.
        """
        noisy = {
            "gemm": self.gemm == "int16",
            "activations": self.activations != "library",
            "vocabulary": self.vocabulary != "full" and self.candidates is None,
        }
        return tuple(option for option, is_noisy in noisy.items() if is_noisy)

    def describe(self) -> str:
        """Describe the techniques: `fused, int16`; `plain` without any."""
        kept = {"precomputed": "embeddings kept", "frequent": f"{self.frequent_words:,} embeddings kept"}
        restricted = {"clustered": "clustered vocabulary", "candidates": "candidate lists"}
        candidates = None if self.candidates is None else f"{self.candidates:,} candidates"
        techniques_used = (
            self.fused and "fused",
            self.gemm,
            kept.get(self.embeddings),
            self.attention == "precomputed" and "attention kept",
            self.activations != "library" and f"{self.activations} activations",
            self.merge and "states merged",
            candidates or restricted.get(self.vocabulary),
        )
        return ", ".join(technique for technique in techniques_used if technique) or "plain"

    def __str__(self) -> str:
        return self.describe()


class DecoderSettings(DecoderOptions):
    """One variant of a decoder; the default is the plain one, of beam 1."""

    beam: Annotated[int, Field(ge=1, le=1000)] = 1
    """Hypotheses of each sentence."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> DecoderSettings:
        """Copy as pydantic does; adding or removing `candidates` sets `vocabulary` too."""
        changed = dict(update or {})
        if "candidates" in changed and "vocabulary" not in changed:
            if changed["candidates"] is not None:
                changed["vocabulary"] = "candidates"
            elif self.candidates is not None:
                changed["vocabulary"] = "full"
        return super().model_copy(update=changed, deep=deep)

    def describe(self) -> str:
        """Describe the settings: `beam 5, fused`; `beam 1, plain` without techniques."""
        return f"beam {self.beam}, {super().describe()}"


RUNGS = ("baseline", "int16", "embeddings", "attention", "activations", "merge")
"""Rungs of the ladder, each added to those before it."""
IDENTITIES = ("embeddings", "attention", "merge")
"""Rungs that change no translation compared with the rung before (SHARP-06, 07, 09)."""


def techniques(
    embeddings: Literal["precomputed", "frequent"] = "frequent",
    activations: Literal["library", "table", "polynomial"] = "polynomial",
) -> dict[str, dict[str, Any]]:
    """Return the changes of each rung to the settings before it, without the baseline, which changes nothing."""
    return {
        "int16": {"gemm": "int16"},
        "embeddings": {"embeddings": embeddings},
        "attention": {"attention": "precomputed"},
        "activations": {"activations": activations},
        "merge": {"merge": True},
    }


def ladder(base: DecoderSettings, changes: dict[str, dict[str, Any]] | None = None) -> dict[str, DecoderSettings]:
    """Return the settings by rung, with `base` for the baseline; `changes` defaults to `techniques()`."""
    settings_by_rung = {RUNGS[0]: base}
    for rung, change in (techniques() if changes is None else changes).items():
        base = base.model_copy(update=change)
        settings_by_rung[rung] = base
    return settings_by_rung
