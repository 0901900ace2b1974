"""``GET /`` and ``GET /page/NAME``: the page, from the files of the package alone.

Headers let the browser load nothing from another host, and to run no script or style that is
written into the document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

INDEX = "index.html"
_FOLDER = Path(__file__).parents[1] / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The browser asks each time whether the page is still from this release.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Asset:
    """A file of the page, as it is sent."""

    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files of the page by name."""
    loaded = {}
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            loaded[path.name] = Asset(content, _TYPES[path.suffix], etag)
    return loaded


def _answer(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"{name[:80]}: the page has no such file")
    headers = {**_HEADERS, "ETag": asset.etag}
    held = request.headers.get("if-none-match", "")
    if asset.etag in (tag.strip().removeprefix("W/") for tag in held.split(",")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the document of the page."""
    return _answer(request, INDEX)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def file(request: Request, name: str) -> Response:
    """Return a style sheet, a script or a picture of the page."""
    return _answer(request, name)
