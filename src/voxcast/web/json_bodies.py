"""Bodies in JSON: their kind, and a bound on their content before they are parsed.

A parser holds up all other requests, and makes fifty bytes of two: the content of a body is
counted in its bytes first.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException

from voxcast.web.json_answers import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import Request

MULTIPART = "multipart/form-data"
# Commas, and opening braces and brackets, in texts too. Of one question, and of 20,000 rows, of
# which each may have all columns and parameters of its own.
QUESTION_VALUES, QUESTION_GROUPS = 10_000, 1_000
BULK_VALUES, BULK_GROUPS = 2**20, 100_000
SMALL_BYTES = 2**18  # of a body up to which it is read at once
BULK_PLACES = 4
RETRY_AFTER_S = 2

Content = TypeVar("Content")


def kind_of(request: Request, *kinds: str) -> str:
    """Return the media type of a body; JSON if it is not stated.

    Raises
    ------
    HTTPException
        415 for another one than ``kinds``.
    """
    kind = request.headers.get("content-type", MEDIA_TYPE).partition(";")[0].strip().lower()
    if kind not in kinds:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"send {' or '.join(kinds)}; with curl: -H 'Content-Type: {MEDIA_TYPE}'",
        )
    return kind


def check_contents(body: bytes, max_values: int, max_groups: int) -> None:
    """Refuse a body that holds more values, or objects and lists, than a question needs.

    Raises
    ------
    HTTPException
        413 if it does.
    """
    if body.count(b",") > max_values or body.count(b"{") + body.count(b"[") > max_groups:
        raise HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a request like this has at most {max_values} values, in {max_groups} objects and "
            "lists; ask for fewer rows at a time",
        )


class BulkBodies:
    """Lets few large bodies in at a time, and parses one of them at a time."""

    def __init__(self) -> None:
        self._large = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def content(
        self,
        request: Request,
        parse: Callable[[bytes], Content],
        max_values: int = BULK_VALUES,
        max_groups: int = BULK_GROUPS,
    ) -> AsyncIterator[Content]:
        """Receive a body and parse it; a large one has its place until the block ends.

        Parameters
        ----------
        parse : callable
            Makes the content of a body that passed `check_contents`.
        max_values, max_groups
            See `check_contents`.

        Raises
        ------
        HTTPException
            413 or 415 for a body that is not read, 429 if no place is free.
        """
        kind_of(request, MEDIA_TYPE)
        stated = request.headers.get("content-length", "")
        if stated.isdigit() and int(stated[:20]) <= SMALL_BYTES:
            body = await request.body()
            check_contents(body, max_values, max_groups)
            yield parse(body)
            return
        if self._large >= BULK_PLACES:
            async for _ in request.stream():  # most clients read no answer before they sent all
                pass
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{BULK_PLACES} large requests are being answered; ask again in a moment",
                {"Retry-After": str(RETRY_AFTER_S)},
            )
        self._large += 1
        try:
            body = await request.body()
            async with self._turn:
                await asyncio.to_thread(check_contents, body, max_values, max_groups)
                content = await asyncio.to_thread(parse, body)
            yield content
        finally:
            self._large -= 1
