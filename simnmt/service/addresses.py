"""Addresses of services: parsed, resolved, and listened at; none but this box's unless the user allows it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from simnmt.base.errors import InputError, shorten

_BACKLOG = 4096
"""Connections that may wait to be accepted; beyond it, clients try again after a second."""


class AddressError(InputError):
    """An address at which nothing can listen, or that cannot be reached."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a port; port 0 stands for any that is free."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only programs on this box reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def resolve(self) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Return the socket addresses, at least one, in the order of preference. Raises `AddressError` if there is none."""
        try:
            entries = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "no such name can exist"
            remedy = "check the name, or give the address in numbers"
            raise AddressError(f"{shorten(self.host)} cannot be resolved: {why}", remedy=remedy) from None
        return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in entries]


def parse_address(text: str, option: str) -> Address:
    """Return the address of `HOST:PORT`, `[::1]:PORT`, or `PORT` on this box. Raises `AddressError` that names `option`."""
    host, _, port = text.strip().rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) < 8):
        remedy = "write it as HOST:PORT, such as 127.0.0.1:5000"
        raise AddressError(f"{option} {shorten(text)!r} is not an address", remedy=remedy)
    if int(port) > 65_535:
        raise AddressError(f"{option}: {int(port)} is not a valid port (1-65535)", remedy="correct it")
    return Address(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def listen_at(address: Address, option: str = "--listen") -> socket.socket:
    """Return a socket that listens at the address and does not block. Raises `AddressError`."""
    family, place = address.resolve()[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        what = f"{option} {address}: cannot listen there: {error.strerror or error}"
        raise AddressError(what, remedy="choose another port, or an address of this machine") from None
    return listener
