"""The address of a server of predictions, and the token that a client shows it."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import stat
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from voxcast.errors import ConfigError, ModelError

TOKEN_VARIABLE = "VOXCAST_TOKEN"  # noqa: S105  # the name of a variable, not a token
TOKEN_FILE_VARIABLE = "VOXCAST_TOKEN_FILE"  # noqa: S105
PLAIN_HTTP_VARIABLE = "VOXCAST_TOKEN_OVER_HTTP"
DEFAULT_PORTS = {"http": 80, "https": 443}
# As the server wants it; anything else could end the header.
_TOKEN = re.compile(r"[!-~]+")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerAddress:
    """An HTTP address, taken apart.

    Attributes
    ----------
    scheme : {"http", "https"}
    host : str
        A name or an IP address, without brackets.
    port : int
    prefix : str
        What precedes the path of every request: empty, or beginning with a slash.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read an address.

        Raises
        ------
        ModelError
            If it is none, or has more than scheme, host, port and path.

        Examples
        --------
        >>> ServerAddress.parse("http://127.0.0.1:5001/")
        ServerAddress(scheme='http', host='127.0.0.1', port=5001, prefix='')
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001") from None
        if "@" in parts.netloc:  # before the address is in any message
            then = f"put a token into {TOKEN_VARIABLE}"
            raise ModelError("has a name or a password in it", "the address", then)
        if (
            parts.scheme not in DEFAULT_PORTS
            or not parts.hostname
            or not (url.isascii() and url.isprintable() and " " not in url)
        ):
            raise ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001")
        if parts.query or parts.fragment:
            raise ModelError("must end with its path", url, "leave out ? and #")
        prefix = parts.path.rstrip("/").removesuffix("/invocations")
        return cls(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], prefix)

    def __str__(self) -> str:
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host_in_url}{port}{self.prefix}"

    @property
    def host_in_url(self) -> str:
        """The host as it is written in an address: IPv6 in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether nothing that is sent there leaves this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def proxy(self) -> ServerAddress | None:
        """Return the proxy that the environment wants for this address; None for none.

        As `urllib` reads ``http_proxy``, ``https_proxy`` and ``no_proxy``; never for this machine.
        """
        if self.is_loopback or urllib.request.proxy_bypass(self.host):
            return None
        proxy = urllib.request.getproxies().get(self.scheme)
        if not proxy:
            return None
        return ServerAddress.parse(proxy if "://" in proxy else f"http://{proxy}")


def token_for(address: ServerAddress, token: str | None, *, plain_http: bool) -> str | None:
    """Return the token to send to a server; None for none.

    Parameters
    ----------
    address : ServerAddress
        Where it would go.
    token : str, optional
        By default that of ``VOXCAST_TOKEN``, or the first line of the file that
        ``VOXCAST_TOKEN_FILE`` names.
    plain_http : bool
        Whether it may leave this machine unencrypted; also by ``VOXCAST_TOKEN_OVER_HTTP=1``.

    Raises
    ------
    ConfigError
        If it cannot be read or is malformed, or anyone on the way could read it.
    """
    where = "the token"
    if token is None:
        token, where = _token_of_environment()
    if token is None:
        return None
    if not _TOKEN.fullmatch(token):
        raise ConfigError("empty, or with characters that a token cannot have", where)
    allowed = plain_http or os.environ.get(PLAIN_HTTP_VARIABLE) == "1"
    if address.scheme == "http" and not address.is_loopback and not allowed:
        then = f"use https, or set {PLAIN_HTTP_VARIABLE}=1 if the network between is trusted"
        raise ConfigError(f"would go to {address} unencrypted", where, then)
    return token


def _token_of_environment() -> tuple[str | None, str]:
    """Return the token of the environment, and where it comes from."""
    if TOKEN_VARIABLE in os.environ:
        return os.environ[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE
    name = os.environ.get(TOKEN_FILE_VARIABLE)
    if not name:
        return None, ""
    try:
        with Path(name).open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(
            f"cannot be read: {reason}", name, f"see {TOKEN_FILE_VARIABLE}"
        ) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("%s: others can read this token; chmod 600 keeps it to you", name)
    return token, name
