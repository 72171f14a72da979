"""The APIs of running services: a class of clients for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simnmt.base.errors import InputError, shorten
from simnmt.service.chat import ChatClient
from simnmt.service.client import ServiceClient, TranslationClient

APIS: dict[str, type[ServiceClient]] = {"libretranslate": TranslationClient, "openai": ChatClient}


@dataclass(frozen=True, slots=True)
class Api:
    """The API of a running service. Raises `InputError` for an unknown one."""

    name: str = "libretranslate"
    model: str = ""
    """Of OpenAI's API, the model that is asked; empty: the only one that the service lists."""

    def __post_init__(self) -> None:
        if self.name not in APIS:
            raise InputError(f"{shorten(self.name)} is not a known API", remedy=f"one of {', '.join(APIS)}, or openai:MODEL")

    @classmethod
    def of(cls, text: str) -> Api:
        """Return the API of a text such as `openai` or `openai:MODEL`."""
        name, _, model = text.partition(":")
        return cls(name, model)

    def connect(self, url: str, pair: tuple[str, str], **options: Any) -> ServiceClient:
        """Return a client; see `ServiceClient`."""
        return APIS[self.name](url, pair, self.model, **options)
