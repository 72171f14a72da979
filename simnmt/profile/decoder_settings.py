"""Options of a decoder, shared by kernels, engine, profile and scenario (XP-03), and the ladder of techniques (SHARP-11)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration

FREQUENT_WORDS = 8000
"""Number of words whose products of embeddings SHARP-06 keeps if it does not keep all."""
Words = Annotated[int, Field(ge=1, le=10**9)]


class DecoderOptions(Configuration):
    """Techniques of a decoder of any beam; none by default."""

    fused: bool = False
    """Bias, softmax and search in one pass over the output layer's products (FNI-03, FNI-05)."""
    gemm: Literal["float32", "int16"] | None = None
    """Type of the products (SHARP-05); None: the compute type of the engine."""
    embeddings: Literal["computed", "precomputed", "frequent"] = "computed"
    """Products of embeddings kept for all words, or for the first `frequent_words` words of the vocabulary (SHARP-06)."""
    frequent_words: Words = FREQUENT_WORDS
    """Number of words with `embeddings: frequent`; ignored otherwise."""
    attention: Literal["computed", "precomputed"] = "computed"
    """Products of source states computed once per sentence instead of once per step (SHARP-07)."""
    activations: Literal["library", "table", "polynomial"] = "library"
    """Method that computes sigmoid and tanh (SHARP-08)."""
    merge: bool = False
    """True if hypotheses with the same recurrent state share its products (SHARP-09)."""
    candidates: Words | None = None
    """Number of target words in the candidate list of any sentence (SHARP-02); None: see `vocabulary`."""
    vocabulary: Literal["full", "clustered", "candidates"] = "full"
    """Tokens that the output layer multiplies: all, those of clusters of contexts (FVP-04), or the candidates listed for the
    words of a sentence (SHARP-02), however many."""

    @model_validator(mode="after")
    def _of_one_vocabulary(self) -> DecoderOptions:
        if self.candidates is not None and self.vocabulary == "clustered":
            raise ValueError(f"candidates: {self.candidates} beside vocabulary: clustered contradict each other")
        return self

    @property
    def restricts(self) -> bool:
        """True if the output layer multiplies a part of the vocabulary."""
        return self.vocabulary != "full" or self.candidates is not None

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

    @property
    def exact(self) -> bool:
        """True if every technique is an identity: translations are those of the plain decoder of this beam (XP-03)."""
        return not self.noise and not self.restricts

    def describe(self) -> str:
        """Describe the techniques: `fused, int16`; `plain` without any."""
        kept = {"precomputed": "embeddings kept", "frequent": f"{self.frequent_words:,} embeddings kept"}
        restricted = {"clustered": "clustered vocabulary", "candidates": "candidate lists"}.get(self.vocabulary)
        techniques_used = (
            "fused" if self.fused else None,
            self.gemm,
            kept.get(self.embeddings),
            "attention kept" if self.attention == "precomputed" else None,
            f"{self.activations} activations" if self.activations != "library" else None,
            "states merged" if self.merge else None,
            restricted if self.candidates is None else f"{self.candidates:,} candidates",
        )
        return ", ".join(technique for technique in techniques_used if technique) or "plain"

    def __str__(self) -> str:
        return self.describe()


class DecoderSettings(DecoderOptions):
    """One variant of a decoder; the default is the plain one, of beam 1."""

    beam: Annotated[int, Field(ge=1, le=1000)] = 1
    """Hypotheses of each sentence."""

    def describe(self) -> str:
        """Describe the settings: `beam 5, fused`; `beam 1, plain` without techniques."""
        return f"beam {self.beam}, {super().describe()}"


def ladder(base: DecoderSettings, embeddings: str = "frequent", activations: str = "polynomial") -> dict[str, DecoderSettings]:
    """Return the settings by rung, each technique added to those before it (SHARP-11)."""
    techniques: dict[str, dict[str, Any]] = {
        "baseline": {},
        "int16": {"gemm": "int16"},
        "embeddings": {"embeddings": embeddings},
        "attention": {"attention": "precomputed"},
        "activations": {"activations": activations},
        "merge": {"merge": True},
    }
    settings_by_rung = {}
    for rung, change in techniques.items():
        settings_by_rung[rung] = base = base.model_copy(update=change)
    return settings_by_rung
