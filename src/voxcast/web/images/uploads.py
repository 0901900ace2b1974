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

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from voxcast.errors import is_disk_full

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from typing import BinaryIO

    from fastapi import Request

FILE_FIELD = "file"
MAX_FIELDS = 32
MAX_FIELD_BYTES = 2**18
DRAIN_S = 10.0  # in which what is refused is received and dropped, so that its answer is read
CLOSE = {"Connection": "close"}


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


@contextlib.asynccontextmanager
async def received_form(request: Request, max_bytes: int) -> AsyncIterator[Form]:
    """Receive a form of at most some bytes; its file is closed, and gone, after the block.

    Raises
    ------
    HTTPException
        400 for a damaged form, 413 for a larger one, 422 for one without a file or with a field
        twice, 507 if the disk is full.
    """
    try:
        form = await MultiPartParser(
            request.headers,
            limited_stream(request, max_bytes),
            max_files=1,
            max_fields=MAX_FIELDS,
            max_part_size=MAX_FIELD_BYTES,
        ).parse()
    except MultiPartException as error:
        await drained(request)
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the form: {error.message}", CLOSE) from None
    except OSError as error:
        await drained(request)
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


async def limited_stream(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield the body of a request.

    Raises
    ------
    HTTPException
        413 once it is larger than ``max_bytes``, 400 if the client has gone.
    """
    stated = request.headers.get("content-length", "")
    received_bytes = 0
    try:
        if not (stated.isdigit() and len(stated) < 20 and int(stated) > max_bytes):
            async for chunk in request.stream():
                received_bytes += len(chunk)
                if received_bytes > max_bytes:
                    break
                yield chunk
            else:
                return
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the client went away", CLOSE) from None
    await drained(request)
    raise HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {max_bytes} bytes", CLOSE
    )


async def drained(request: Request) -> None:
    """Receive and drop what is left of a request, for some seconds at most.

    Most clients read no answer before they have sent all, and report a broken connection instead.
    """
    with contextlib.suppress(TimeoutError, HTTPException):
        async with asyncio.timeout(DRAIN_S):
            while (await request.receive()).get("more_body"):
                pass


def _of_system(error: OSError) -> HTTPException:
    if is_disk_full(error):
        return HTTPException(
            HTTPStatus.INSUFFICIENT_STORAGE,
            f"the disk of {tempfile.gettempdir()} is full; the image was not read",
            CLOSE,
        )
    raise error
