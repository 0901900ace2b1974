"""Images that come in a form: received into files without a name, with a limit of their size.

A file without a name goes when it is closed or its process ends, however it ends. The name that a
client gives is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from voxcast.errors import is_disk_full
from voxcast.web.problems import CLIENT_GONE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from typing import BinaryIO

    from fastapi import Request

FILE_FIELD = "file"
MAX_FIELDS = 32
MAX_FIELD_BYTES = 2**18
DRAIN_S = 10.0  # in which a refused body is received and dropped, so that its answer is read
CLOSE = {"Connection": "close"}
UTF_8 = (b"utf-8", b"utf8")


@dataclass(frozen=True)
class Form:
    """A form with an image.

    Attributes
    ----------
    fields : dict of str to str
        All fields but the file.
    file : binary file
        The image, open for reading.
    """

    fields: dict[str, str]
    file: BinaryIO


class LimitedBody:
    """The body of a request, received up to a limit.

    Parameters
    ----------
    request : Request
        Whose body nothing has received so far.
    max_bytes : int
        Limit of its size.
    """

    def __init__(self, request: Request, max_bytes: int) -> None:
        self.headers = request.headers
        self._receive, self._max_bytes = request.receive, max_bytes
        self._ended = False  # then nothing comes but that the client has gone

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield its parts.

        Raises
        ------
        HTTPException
            413 once it is larger than the limit, 400 if the client has gone.
        """
        stated, received_bytes = self.headers.get("content-length", ""), 0
        if stated.isdigit() and len(stated) < 20 and int(stated) > self._max_bytes:
            raise self._too_large()
        while not self._ended:
            part = await self._part()
            received_bytes += len(part)
            if received_bytes > self._max_bytes:
                raise self._too_large()
            yield part

    async def drain(self) -> None:
        """Receive and drop the rest, for some seconds at most.

        Most clients read no answer before they have sent all, and report a broken connection
        instead.
        """
        with contextlib.suppress(TimeoutError, HTTPException):
            async with asyncio.timeout(DRAIN_S):
                while not self._ended:
                    await self._part()

    async def _part(self) -> bytes:
        self._ended = True  # also where receiving fails
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(HTTPStatus.BAD_REQUEST, CLIENT_GONE, CLOSE)
        self._ended = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    def _too_large(self) -> HTTPException:
        detail = f"a request has at most {self._max_bytes} bytes"
        return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, CLOSE)


@contextlib.asynccontextmanager
async def received_form(body: LimitedBody) -> AsyncIterator[Form]:
    """Receive a form; its file is closed, and gone, after the block.

    Raises
    ------
    HTTPException
        400 for a damaged form, 413 for one that is too large, 415 for one that is not in UTF-8,
        422 for one without a file or with a field twice, 507 if the disk is full.
    """
    _, parameters = parse_options_header(body.headers.get("content-type", ""))
    if parameters.get(b"charset", b"utf-8").lower() not in UTF_8:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the form: must be in UTF-8", CLOSE)
    try:
        form = await MultiPartParser(
            body.headers,
            body.stream(),
            max_files=1,
            max_fields=MAX_FIELDS,
            max_part_size=MAX_FIELD_BYTES,
        ).parse()
    except MultiPartException as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the form: {error.message}", CLOSE) from None
    except OSError as error:
        raise _of_system(error) from None
    try:
        fields = {name: text for name, text in form.multi_items() if isinstance(text, str)}
        upload = form.get(FILE_FIELD)
        if not isinstance(upload, UploadFile):
            raise HTTPException(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{FILE_FIELD}: the form has no file in a field of this name",
            )
        if len(form.multi_items()) > len(fields) + 1:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "a field of the form comes twice")
        try:
            # A small file is in memory so far; the reader needs a descriptor.
            upload.file.fileno()
            upload.file.flush()
        except OSError as error:
            raise _of_system(error) from None
        yield Form(fields, upload.file)
    finally:
        await form.close()


def _of_system(error: OSError) -> HTTPException:
    if is_disk_full(error):
        return HTTPException(
            HTTPStatus.INSUFFICIENT_STORAGE,
            f"the disk of {tempfile.gettempdir()} is full; the image was not read",
            CLOSE,
        )
    raise error
