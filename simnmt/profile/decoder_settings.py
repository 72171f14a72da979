"""Options of a decoder, shared by kernels, engine, profile and scenario (XP-03), and the ladder of techniques (SHARP-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration

FREQUENT_WORDS = 8000
"""Of which SHARP-06 keeps the products when it does not keep all."""


class DecoderOptions(Configuration):
    """Techniques of a decoder, whatever its beam; by default none."""

    fused: bool = False
    """Bias, softmax and search in one pass over the output layer's products (FNI-03, FNI-05)."""
    gemm: Literal["float32", "int16"] | None = None
    """In what the products are computed (SHARP-05); None: in the compute type of the engine."""
    embeddings: Literal["computed", "precomputed", "frequent"] = "computed"
    """Products of embeddings looked up for all words, or for the `frequent_words` first ones of the vocabulary (SHARP-06)."""
    frequent_words: Annotated[int, Field(ge=1, le=10**9)] = FREQUENT_WORDS
    """Of `embeddings: frequent` alone."""
    attention: Literal["computed", "precomputed"] = "computed"
    """Products of source states made once a sentence instead of once a step (SHARP-07)."""
    activations: Literal["library", "table", "polynomial"] = "library"
    """How sigmoid and tanh are computed (SHARP-08)."""
    merge: bool = False
    """Hypotheses that share a recurrent state share its products (SHARP-09)."""
    candidates: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Target words of the candidate list (SHARP-02), whatever the sentence; None: as `vocabulary` says."""
    vocabulary: Literal["full", "clustered", "candidates"] = "full"
    """Which tokens of the output layer are multiplied: all, those of clusters of contexts (FVP-04), or those that a sentence's
    words are listed with (SHARP-02). `candidates` with a number means the last."""

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
        """Whether every technique used is an identity: translations are those of the plain decoder of this beam (XP-03)."""
        return not self.noise and self.vocabulary == "full"

    @property
    def noise(self) -> tuple[str, ...]:
        """The options that tell other tokens than the plain decoder, whose agreement can be measured (SHARP-10, FVP-08).

        A list of so many candidates is none of them: it says which words there are to choose from.
        """
        noisy = {
            "gemm": self.gemm == "int16",
            "activations": self.activations != "library",
            "vocabulary": self.vocabulary != "full" and self.candidates is None,
        }
        return tuple(option for option, is_noisy in noisy.items() if is_noisy)


class DecoderSettings(DecoderOptions):
    """One variant of a decoder; the default is the plain one, of beam 1."""

    beam: Annotated[int, Field(ge=1, le=1000)] = 1
    """Hypotheses of each sentence."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> DecoderSettings:
        """As pydantic's; a number of candidates that comes or goes takes the vocabulary with it."""
        changed = dict(update or {})
        if "candidates" in changed and "vocabulary" not in changed:
            if changed["candidates"] is not None:
                changed["vocabulary"] = "candidates"
            elif self.candidates is not None:
                changed["vocabulary"] = "full"
        return super().model_copy(update=changed, deep=deep)

    def describe(self) -> str:
        """Describe the settings: `beam 5, fused`; `beam 1, plain` where no technique is used."""
        techniques_used = [
            "fused" if self.fused else "",
            self.gemm or "",
            {"computed": "", "precomputed": "embeddings kept", "frequent": f"{self.frequent_words:,} embeddings kept"}[
                self.embeddings
            ],
            "attention kept" if self.attention == "precomputed" else "",
            "" if self.activations == "library" else f"{self.activations} activations",
            "states merged" if self.merge else "",
            {"full": "", "clustered": "clustered vocabulary", "candidates": "candidate lists"}[self.vocabulary]
            if self.candidates is None
            else f"{self.candidates:,} candidates",
        ]
        return ", ".join([f"beam {self.beam}", *(list(filter(None, techniques_used)) or ["plain"])])


RUNGS = ("baseline", "int16", "embeddings", "attention", "activations", "merge")
"""Of the ladder, each on top of those before it."""
IDENTITIES = ("embeddings", "attention", "merge")
"""Those that change no translation beside the rung before (SHARP-06, 07, 09)."""


def techniques(
    embeddings: Literal["precomputed", "frequent"] = "frequent",
    activations: Literal["library", "table", "polynomial"] = "polynomial",
) -> dict[str, dict[str, Any]]:
    """What each rung changes of the settings before it, but for the baseline, which changes nothing."""
    changes: tuple[dict[str, Any], ...] = (
        {"gemm": "int16"},
        {"embeddings": embeddings},
        {"attention": "precomputed"},
        {"activations": activations},
        {"merge": True},
    )
    return dict(zip(RUNGS[1:], changes, strict=True))


def ladder(base: DecoderSettings, changes: dict[str, dict[str, Any]] | None = None) -> dict[str, DecoderSettings]:
    """Return the settings by rung, `base` for the baseline; `changes` replaces those of `techniques()`."""
    settings_by_rung = {RUNGS[0]: base}
    for rung, change in (techniques() if changes is None else changes).items():
        base = base.model_copy(update=change)
        settings_by_rung[rung] = base
    return settings_by_rung
