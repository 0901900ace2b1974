"""One HTTP server of predictions: its address, the token it is shown, and its answers in words.

Questions change nothing on a server, so a broken or refused one is asked again. Redirections are
not followed: a token would go to another server.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import random
import re
import ssl
import stat
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import voxcast
from voxcast.errors import ConfigError, ImageError, ModelError, one_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.serving.rows.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE = "VOXCAST_TOKEN"  # noqa: S105  # the name of a variable, not a token
TOKEN_FILE_VARIABLE = "VOXCAST_TOKEN_FILE"  # noqa: S105
PLAIN_HTTP_VARIABLE = "VOXCAST_TOKEN_OVER_HTTP"
CONNECT_S = 5.0
HEALTH_S = 10.0
MAX_ANSWER_BYTES = 2**26  # 10,000 predictions, which are requested at a time, are 25 MB
LONGEST_WAIT_S, TOLD_WAIT_S = 10.0, 1.0
# The server is busy or starting; 502 is a proxy's report of a refused connection.
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
# Of a question that another server, such as MLflow's, does not know.
UNKNOWN_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_REFUSED = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_PROBLEM = "application/problem+json"  # RFC 9457, as the service answers
_FIX = "is it the server of `voxcast serve`?"
_START = "is it running? see `voxcast serve`"
_TOKEN = re.compile(r"[!-~]+")  # anything else could end the header
# What would steer a terminal, as JSON has it.
_STEERING = re.compile(r"\\u00(?:0[0-8bcef]|1.|7f|[89].)|[\x7f-\x9f]", re.IGNORECASE)
_RANDOM = random.SystemRandom()  # so that clients started together do not wait alike

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Server:
    """Asks one server; threads may share it, and connections stay open between questions.

    Parameters
    ----------
    url : str
        Its address; what precedes the path of every question stays.
    token : str, optional
        Sent with every question; by default ``VOXCAST_TOKEN``, or the first line of the
        file that ``VOXCAST_TOKEN_FILE`` names.
    plain_http_token : bool
        Whether the token may leave this machine unencrypted; also by
        ``VOXCAST_TOKEN_OVER_HTTP=1``.
    timeout_s : float
        Longest wait for the next bytes of an answer; the first ones come when the work is done.
    total_s : float
        For a question with all its attempts and the waits between them.
    attempts : int
        Of one question. The wait after a failure is drawn from 0 to a limit that doubles, up to
        10 s: full jitter, see M. Brooker, "Exponential Backoff And Jitter" (2015).

    Raises
    ------
    ModelError
        If the address is invalid.
    ConfigError
        If the token cannot be used, or would go over a network unencrypted.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        plain_http_token: bool = False,
        timeout_s: float = 60.0,
        total_s: float = 180.0,
        attempts: int = 5,
    ) -> None:
        address = _address(url)
        self.address = str(address)
        self.timeout_s, self.total_s, self.attempts = timeout_s, total_s, attempts
        is_local = _is_loopback(address.host)
        self._token = _token(address, token, plain_http=plain_http_token or is_local)
        headers = {"Accept": "application/json", "User-Agent": f"voxcast/{voxcast.__version__}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        self._http = httpx.Client(
            headers=headers,
            trust_env=not is_local,  # no proxy for this machine
            # With the certificates of this system, to which a hospital adds its own.
            verify=ssl.create_default_context(),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str) -> Answer:
        """Return the answer to a question without a body; errors as `post`."""
        return self._ask("GET", path)

    def get_once(self, path: str) -> Answer:
        """Return the answer to a question that is not repeated; errors as `post`."""
        return self._ask("GET", path, attempts=1, timeout_s=HEALTH_S)

    def post(self, path: str, content: Mapping[str, Any]) -> Answer:
        """Return the answer to an object.

        Raises
        ------
        ModelError
            If the server cannot be reached, is late, or stays busy.
        """
        headers = {"Content-Type": "application/json"}
        return self._ask("POST", path, content=json.dumps(content).encode(), headers=headers)

    def post_file(self, path: str, image: Path, fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a file and fields, with fields that are not text as JSON.

        The name of the file is not sent, which may tell who the subject is.

        Raises
        ------
        ImageError
            If the file cannot be read, or has become shorter.
        ModelError
            See `post`.
        """
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()}
        name = "image.nii.gz" if image.name.endswith(".gz") else "image.nii"
        try:
            with image.open("rb") as file:
                part = (name, file, "application/octet-stream")
                return self._ask("POST", path, data=texts, files={"file": part})
        except httpx.LocalProtocolError:
            raise ImageError("has changed while it was sent", image) from None
        except FileNotFoundError:
            raise ImageError("no such file", image) from None
        except OSError as error:
            raise ImageError(f"cannot be read: {error.strerror}", image) from None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        attempts: int | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        **content: Any,
    ) -> Answer:
        timeout_s, attempts = timeout_s or self.timeout_s, attempts or self.attempts
        end_s = time.monotonic() + self.total_s
        for failures in range(1, attempts + 1):
            requested_s = 0.0
            try:
                answer = self._exchange(method, path, end_s, timeout_s, headers or {}, content)
            except (httpx.ReadTimeout, httpx.WriteTimeout):
                limit = format_seconds(min(timeout_s, self.total_s))
                raise self.problem(f"does not answer within {limit}", "see its log") from None
            except httpx.LocalProtocolError:
                raise
            except httpx.TransportError as error:
                failure = f"is not there: {one_line(error) or type(error).__name__}"
                if "CERTIFICATE_VERIFY" in failure:
                    raise self.problem(failure, "ask who runs it for its certificate") from None
                then = _START
            else:
                if answer.status not in BUSY or attempts == 1:
                    return answer
                requested_s = _seconds(answer.headers.get("retry-after", ""))
                failure, then = _stated(answer), "ask later"
            limit_s = min(LONGEST_WAIT_S, 0.25 * 2.0 ** (failures - 1))
            wait_s = requested_s + _RANDOM.uniform(0.0, limit_s)
            if failures == attempts or time.monotonic() + wait_s > end_s:
                break
            if wait_s >= TOLD_WAIT_S:
                again = format_seconds(wait_s)
                logger.info("%s %s; asked again in %s", self.address, failure, again)
            time.sleep(wait_s)
        counted = f", asked {failures} times" if failures > 1 else ""
        raise self.problem(f"{failure}{counted}", then)

    def _exchange(
        self,
        method: str,
        path: str,
        end_s: float,
        timeout_s: float,
        headers: Mapping[str, str],
        content: Mapping[str, Any],
    ) -> Answer:
        """Ask once; a late answer raises `httpx.ReadTimeout`, also where it comes byte by byte."""
        left_s = max(0.001, min(timeout_s, end_s - time.monotonic()))
        timeout = httpx.Timeout(left_s, connect=min(CONNECT_S, left_s))
        for part in content.get("files", {}).values():
            part[1].seek(0)
        url, headers = self.address + path, {"X-Request-ID": uuid.uuid4().hex, **headers}
        with self._http.stream(
            method, url, timeout=timeout, headers=headers, **content
        ) as response:
            received = bytearray()
            for part in response.iter_bytes():
                received += part
                if len(received) > MAX_ANSWER_BYTES:
                    limit = format_bytes(MAX_ANSWER_BYTES)
                    raise self.problem(f"answers with more than {limit}")
                if time.monotonic() > end_s:
                    raise httpx.ReadTimeout("late")
            return Answer(response.status_code, response.headers, bytes(received))

    def content(self, answer: Answer) -> dict[str, Any]:
        """Return the object of an answer.

        Raises
        ------
        RequestError
            If the question was refused.
        ModelError
            If it is another error, or no object.
        """
        if answer.status in _REFUSED or _is_about_content(answer):
            raise refusal(_detail(answer), self.address)
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = "wants a token" if self._token is None else "refuses the token"
            raise self.problem(problem, f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}")
        if answer.status != HTTPStatus.OK:
            raise self.problem(_stated(answer))
        try:
            text = answer.content.decode()
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self.problem("answers something else than a JSON object")
        if _STEERING.search(text):
            raise self.problem("answers with unprintable characters")
        return content

    def problem(self, problem: str, then: str = _FIX) -> ModelError:
        """Return the error of a server that does not answer as it should."""
        return ModelError(f"the server {problem}", self.address, then)


def _address(url: str) -> httpx.URL:
    """Return the address of a server, without a slash or ``/invocations`` at its end."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001") from None
    if address.userinfo:  # before the address is in any message
        then = f"put a token into {TOKEN_VARIABLE}"
        raise ModelError("has a name or a password in it", "the address", then)
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001")
    if address.query or address.fragment:
        raise ModelError("must end with its path", url, "leave out ? and #")
    path = address.path.rstrip("/").removesuffix("/invocations")
    return address.copy_with(path=path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(address: httpx.URL, token: str | None, *, plain_http: bool) -> str | None:
    """Return the token to send, which is refused where anyone on the way could read it."""
    where = "the token"
    if token is None:
        token, where = _token_of_environment()
    if token is None:
        return None
    if not _TOKEN.fullmatch(token):
        raise ConfigError("empty, or with characters that a token cannot have", where)
    if address.scheme == "http" and not plain_http and os.environ.get(PLAIN_HTTP_VARIABLE) != "1":
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
        then = f"see {TOKEN_FILE_VARIABLE}"
        raise ConfigError(f"cannot be read: {reason}", name, then) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("%s: others can read this token; chmod 600 keeps it to you", name)
    return token, name


def _seconds(text: str) -> float:
    """Return the time that ``Retry-After`` states in seconds; 0 for a date, or nothing."""
    return float(text) if text.isdecimal() else 0.0


def _is_about_content(answer: Answer) -> bool:
    """Tell whether 404 is about an item of a question, such as a path, and not of its address."""
    is_problem = answer.headers.get("content-type", "").startswith(_PROBLEM)
    named = _detail(answer) not in ("", HTTPStatus.NOT_FOUND.phrase)
    return answer.status == HTTPStatus.NOT_FOUND and is_problem and named


def _stated(answer: Answer) -> str:
    """Return a server's answer that is not a result, in words."""
    if target := answer.headers.get("location"):
        return f"answers {answer.status}: it is elsewhere, at {_printable(target)}"
    detail = _detail(answer)
    return f"answers {answer.status}{f': {detail}' if detail else ''}"


def _detail(answer: Answer) -> str:
    """Return the reason in an answer: of RFC 9457, of MLflow, or the text of a proxy."""
    text = answer.content[: 2**16].decode(errors="replace")
    try:
        content = json.loads(text)
        reason = content.get("detail") or content.get("message")
    except (ValueError, RecursionError, AttributeError):
        reason = text
    return _printable(str(reason or ""))[:2000]


def _printable(text: str) -> str:
    """Return a text of others on one line, without what would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
