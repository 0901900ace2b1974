"""Questions to one server, repeated where that may help, and its answers or errors in words."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

import voxcast
from voxcast.errors import ModelError, one_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.serving.http.address import ServerAddress
from voxcast.serving.http.connections import (
    MAX_ANSWER_BYTES,
    Answer,
    AnswerTooLargeError,
    Body,
    Connections,
    Question,
    Timeouts,
)
from voxcast.serving.http.retries import BUSY, Retries, is_transient, retry_after_s
from voxcast.serving.rows.refusals import refusal

PING = "/ping"  # which MLflow's server has, too
PING_S = 10.0  # for the first answer of all, so that a dead server is noticed soon
_REFUSED = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
# Of a question that another server, such as MLflow's, does not know.
UNKNOWN_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
PROBLEM = "application/problem+json"  # RFC 9457, as the service answers
_FIX = "is it the server of `voxcast serve`?"
_START = "is it running? see `voxcast serve`"
_LONG_WAIT_S = 1.0  # is told
MAX_DETAIL_BYTES = 2**16  # of an error that is read
MAX_VALUES = 2**22  # commas and brackets of an answer, of which a parser makes 60 bytes each

logger = logging.getLogger(__name__)


class ServerSession:
    """Asks one server; threads may share it.

    Parameters
    ----------
    address : ServerAddress
    token : str or None
        Sent with every question.
    timeouts : Timeouts
    retries : Retries
        When a question is repeated.
    """

    def __init__(
        self, address: ServerAddress, token: str | None, timeouts: Timeouts, retries: Retries
    ) -> None:
        self.address = address
        self.timeouts = timeouts
        self.retries = retries
        self._token = token
        self._connections = Connections(address, timeouts)
        self._has_answered = False

    def close(self) -> None:
        """Close the connections; the next question opens one again."""
        self._connections.close()

    def get(self, path: str) -> Answer:
        """Return the answer to a question without a body; errors as `send`."""
        return self._ask("GET", path, {}, None)

    def get_once(self, path: str) -> Answer:
        """Return the answer to a question that is not repeated; errors as `send`."""
        return self._ask("GET", path, {}, None, Retries(attempts=1), PING_S)

    def post(self, path: str, content: Mapping[str, Any]) -> Answer:
        """Return the answer to an object; errors as `send`."""
        body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return self.send(path, headers, lambda: body)

    def send(self, path: str, headers: Mapping[str, str], body: Body) -> Answer:
        """Return the answer to a body, which is made anew for each attempt.

        Raises
        ------
        ModelError
            If the server cannot be reached, is late, or stays busy.
        """
        return self._ask("POST", path, headers, body)

    def _ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Body | None,
        retries: Retries | None = None,
        read_s: float | None = None,
    ) -> Answer:
        if not self._has_answered and path != PING:
            self._ask("GET", PING, {}, None, retries, PING_S)
            self._has_answered = True
        question = Question(method, path, {**self._common_headers(), **headers}, body)
        patience = retries or self.retries
        end_s = time.monotonic() + self.timeouts.total_s
        for failures in range(1, patience.attempts + 1):
            requested_s = None
            try:
                answer = self._connections.exchange(question, end_s, read_s)
            except TimeoutError:
                limit_s = min(read_s or self.timeouts.read_s, self.timeouts.total_s)
                problem = f"does not answer within {format_seconds(limit_s)}"
                raise self.problem(problem, _START if path == PING else "see its log") from None
            except AnswerTooLargeError:
                problem = f"answers with more than {format_bytes(MAX_ANSWER_BYTES)}"
                raise self.problem(problem) from None
            except (OSError, HTTPException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                failure = f"is not there: {one_line(RuntimeError(reason))}"
                if not is_transient(error):
                    raise self.problem(failure, _START) from None
                then = _START
            else:
                if answer.status not in BUSY or patience.attempts == 1:
                    return answer
                requested_s = retry_after_s(answer.headers.get("retry-after"))
                failure, then = _stated(answer), "ask later"
            wait_s = patience.wait_s(failures, requested_s)
            if failures == patience.attempts or time.monotonic() + wait_s > end_s:
                break
            if wait_s >= _LONG_WAIT_S:
                logger.info("%s %s; asked again in %s", self.address, failure,
                            format_seconds(wait_s))  # fmt: skip
            time.sleep(wait_s)
        counted = f", asked {failures} times" if failures > 1 else ""
        raise self.problem(f"{failure}{counted}", then)

    def _common_headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "User-Agent": f"voxcast/{voxcast.__version__}",
            "X-Request-ID": uuid.uuid4().hex,
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

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
            raise refusal(_detail(answer), str(self.address))
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            problem = "wants a token" if self._token is None else "refuses the token"
            raise self.problem(problem, "set VOXCAST_TOKEN or VOXCAST_TOKEN_FILE")
        if answer.status != HTTPStatus.OK:
            raise self.problem(_stated(answer))
        if sum(map(answer.content.count, (b",", b"[", b"{"))) > MAX_VALUES:
            raise self.problem(f"answers with more than {MAX_VALUES} values")
        try:
            content = json.loads(answer.content)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self.problem("answers something else than a JSON object")
        return content

    def problem(self, problem: str, then: str = _FIX) -> ModelError:
        """Return the error of a server that does not answer as it should."""
        return ModelError(f"the server {problem}", self.address, then)


def _is_about_content(answer: Answer) -> bool:
    """Tell whether 404 is of what a question names, such as a path, and not of its address."""
    is_problem = answer.headers.get("content-type", "").startswith(PROBLEM)
    named = _detail(answer) not in ("", HTTPStatus.NOT_FOUND.phrase)
    return answer.status == HTTPStatus.NOT_FOUND and is_problem and named


def _stated(answer: Answer) -> str:
    """Return what a server answered instead of a result, in words."""
    if target := answer.headers.get("location"):
        return f"answers {answer.status}: it is elsewhere, at {_printable(target)}"
    detail = _detail(answer)
    return f"answers {answer.status}{f': {detail}' if detail else ''}"


def _detail(answer: Answer) -> str:
    """Return the reason in an answer: of RFC 9457, of MLflow, or the text of a proxy."""
    text = answer.content[:MAX_DETAIL_BYTES].decode(errors="replace")
    try:
        content = json.loads(text)
        reason = content.get("detail") or content.get("message")
    except (ValueError, RecursionError, AttributeError):
        reason = text
    return _printable(str(reason or ""))[:2000]


def _printable(text: str) -> str:
    """Return a text of others on one line, without what would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
