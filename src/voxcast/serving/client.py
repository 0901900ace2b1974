"""A client of the service that ``voxcast serve`` starts: the same questions as to a local model.

Questions change nothing on a server, so a broken or refused one is asked again. Redirections are
not followed: a token would go to another server.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import random
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

import voxcast
from voxcast.errors import ConfigError, ModelError, RequestError, one_line
from voxcast.quantities import format_seconds
from voxcast.records import Configuration
from voxcast.refusals import refusal_of
from voxcast.serving.bundle import app_among
from voxcast.serving.champion import Champion
from voxcast.serving.signature import QUANTILE, VOLUME, Answer

TOKEN_VARIABLE = "VOXCAST_TOKEN"  # noqa: S105  # the name of a variable, not a token
TOKEN_FILE_VARIABLE = "VOXCAST_TOKEN_FILE"  # noqa: S105
CONNECT_S, ANSWER_S = 5.0, 60.0
ATTEMPTS = 5
# The server is busy or starting; 502 is a proxy's report of a refused connection.
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
_REFUSED = (400, 413, 415, 422)
_FIX = "is it the server of `voxcast serve`?"
_TOKEN = re.compile(r"[!-~]+")  # anything else could end the header
# What would steer a terminal, as JSON has it.
_STEERING = re.compile(r"\\u00(?:0[0-8bcef]|1.|7f|[89].)|[\x7f-\x9f]", re.IGNORECASE)
_ROW = re.compile(r"\brow (\d+)")
_RANDOM = random.SystemRandom()  # so that clients started together do not wait alike
# Of one request, below the limits of a server.
PART_BYTES, PART_ROWS = 2**22, 500

Row = dict[str, Any]


class ServedFacts(BaseModel):
    """Facts of an application in ``GET /models`` that a client needs to ask about images."""

    configurations: Annotated[list[Configuration], Field(min_length=1)]
    measured: tuple[tuple[str, int, int], ...]
    coarse_points: Annotated[int, Field(ge=16, le=256)]
    network_points: Annotated[int, Field(ge=0, le=64)]
    characteristics: tuple[str, ...]
    host_classes: tuple[str, ...]
    parameters: dict[str, Any]


class ServedModels(BaseModel):
    """The model in ``GET /models``."""

    version: str
    apps: dict[str, ServedFacts]


class Client:
    """Asks one server; threads may share it, and connections stay open between questions.

    Parameters
    ----------
    url : str
        Its address; what precedes the path of every question stays.
    token : str, optional
        Sent with every question; by default ``VOXCAST_TOKEN``, or the first line of the
        file that ``VOXCAST_TOKEN_FILE`` names.

    Raises
    ------
    ModelError
        If the address is invalid.
    ConfigError
        If the token cannot be used, or would go over a network unencrypted.

    Notes
    -----
    All questions raise `voxcast.errors.RequestError` where the server refuses their content,
    and `voxcast.errors.ModelError` where it cannot be reached or does not answer as it should.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        address = _address(url)
        self.address = str(address)
        is_local = is_loopback(address.host)
        token = _token() if token is None else token
        headers = {"Accept": "application/json", "User-Agent": f"voxcast/{voxcast.__version__}"}
        if token is not None:
            if not _TOKEN.fullmatch(token):
                raise ConfigError("empty, or with characters that it cannot have", "the token")
            if address.scheme == "http" and not is_local:
                raise ConfigError(f"would go to {url} unencrypted", "the token", "use https")
            headers["Authorization"] = f"Bearer {token}"
        self._has_token = token is not None
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=not is_local,  # no proxy for this machine
            # With the certificates of this system, to which a hospital adds its own.
            verify=ssl.create_default_context(),
        )

    def predict(
        self, requests: Sequence[Row], quantile: float = QUANTILE, *, explain: bool = False
    ) -> list[Row]:
        """Return the predictions of rows; many take several requests.

        Parameters
        ----------
        requests, quantile, explain
            As for `voxcast.serving.prediction_service.PredictionService.predict`.
        """
        params = {"quantile": quantile, "explain": explain}
        predictions: list[Row] = []
        for part in parts([encoded(row) for row in requests]):
            question = {"dataframe_records": part, "params": params}
            try:
                answer = self._answer("POST", "/invocations", question).get("predictions")
            except RequestError as error:  # its number is that among all rows
                before = len(predictions)
                text = _ROW.sub(lambda m: f"row {before + int(m[1])}", error.problem, count=1)  # noqa: B023
                raise RequestError(text, error.where, error.then) from None
            if not isinstance(answer, list) or len(answer) != len(part):
                raise self._problem("has no prediction for each row")
            self._checked(list[Answer], answer)
            predictions += answer
        return predictions

    def champion(self, app: str | None = None) -> Champion:
        """Return the served model as one of its applications; None stands for the only one."""
        apps = self.apps
        name = app_among([*apps], app)
        facts = apps[name]
        return Champion(self.predict, name, facts, facts.network_points, facts.configurations)

    def models(self) -> ServedModels:
        """Return the version that answers now, and its applications."""
        listed: ServedModels = self._checked(ServedModels, self._answer("GET", "/models"))
        return listed

    @property
    def version(self) -> str:
        """Number of the version that answers now."""
        return self.models().version

    @property
    def apps(self) -> dict[str, ServedFacts]:
        """The applications that it predicts, by name."""
        return self.models().apps

    def _answer(self, method: str, path: str, question: Any = None) -> dict[str, Any]:
        """Ask, again while the server is busy, with waits that double on average; return its JSON.

        Full jitter, see M. Brooker, "Exponential Backoff And Jitter" (2015).
        """
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_RANDOM.uniform(0.0, 0.5 * 2.0**attempt))
            try:
                answer = self._http.request(method, self.address + path, json=question)
            except (httpx.ReadTimeout, httpx.WriteTimeout):
                limit = format_seconds(ANSWER_S)
                raise self._problem(f"does not answer within {limit}", "see its log") from None
            except httpx.TransportError as error:
                problem = f"is not there: {one_line(error) or type(error).__name__}"
                then = "is it running? see `voxcast serve`"
            else:
                if answer.status_code not in BUSY:
                    return self._content(answer)
                problem, then = _words(answer), "ask later"
        raise self._problem(problem, then)

    def _content(self, answer: httpx.Response) -> dict[str, Any]:
        """Return the object of an answer."""
        status = answer.status_code
        if status in _REFUSED:
            raise RequestError(_detail(answer), self.address)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = "refuses the token" if self._has_token else "wants a token"
            raise self._problem(problem, f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}")
        if status != HTTPStatus.OK:
            raise self._problem(_words(answer))
        try:
            content = answer.json()
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self._problem("answers something else than a JSON object")
        if _STEERING.search(answer.text):
            raise self._problem("answers with unprintable characters")
        return content

    def _checked(self, kind: Any, content: Any) -> Any:
        """Return content of an answer as records; refuse another form."""
        try:
            return _adapter(kind).validate_python(content)
        except ValidationError as error:
            where, reason = refusal_of(error.errors(include_url=False))
            problem = f"answers in another form: {_printable(f'{where}: {reason}')}"
            raise self._problem(problem) from None

    def _problem(self, problem: str, then: str = _FIX) -> ModelError:
        """Return the error of a server that does not answer as it should."""
        return ModelError(f"the server {problem}", self.address, then)


def encoded(row: Mapping[str, Any]) -> Row:
    """Return a row as JSON takes it: a small volume in base64."""
    volume = row.get(VOLUME)
    if isinstance(volume, bytes):
        return {**row, VOLUME: base64.b64encode(volume).decode()}
    return dict(row)


def parts(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return rows in order, as many at a time as a server receives; there is one part at least."""
    largest = max((len(row.get(VOLUME) or "") for row in rows), default=0)
    size = max(min(PART_ROWS, PART_BYTES // max(largest, 1)), 1)
    return [rows[first : first + size] for first in range(0, max(len(rows), 1), size)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _address(url: str) -> httpx.URL:
    """Return the address of a server, without a slash at its end."""
    wrong = ModelError("not an HTTP address", url, "e.g. http://127.0.0.1:5001")
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise wrong from None
    if address.userinfo:  # before the address is in any message
        then = f"put a token into {TOKEN_VARIABLE}"
        raise ModelError("has a name or a password in it", "the address", then)
    is_plain = url.isascii() and url.isprintable() and not {*" ?#"} & {*url}
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise wrong
    return address.copy_with(path=address.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _token() -> str | None:
    """Return the token of the environment, or the first line of the file that it names."""
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    if TOKEN_VARIABLE in os.environ or not path:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        then = f"see {TOKEN_FILE_VARIABLE}"
        raise ConfigError(f"cannot be read: {reason}", path, then) from None


def _words(answer: httpx.Response) -> str:
    """Return a server's answer that is not a result, in words."""
    detail = _printable(answer.headers.get("location", "")) or _detail(answer)
    return f"answers {answer.status_code}{f': {detail}' if detail else ''}"


def _detail(answer: httpx.Response) -> str:
    """Return the reason in an answer: of RFC 9457, or the text of a proxy."""
    try:
        reason = answer.json()["detail"]
    except (ValueError, RecursionError, TypeError, LookupError):
        reason = answer.text[: 2**16]
    return _printable(str(reason))[:500]


def _printable(text: str) -> str:
    """Return a text of others on one line, without what would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
