"""A NIfTI file and the fields of a question as ``multipart/form-data``, read piece by piece."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PART = 2**18


@dataclass(frozen=True)
class Upload:
    """The body of a request; its size is known before it is read, see RFC 7578.

    The name of the file is not sent, which may tell who the subject is.

    Attributes
    ----------
    image : Path
    size : int
        Of the file, in bytes.
    fields : mapping
        Names and values; those that are no text are sent as JSON.
    """

    image: Path
    size: int
    fields: Mapping[str, Any]
    boundary: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(cls, image: Path, fields: Mapping[str, Any]) -> Upload:
        """Describe the upload of a file.

        Raises
        ------
        ImageError
            If there is no such file.
        """
        if not image.is_file():
            raise ImageError("no such file", image)
        return cls(image, image.stat().st_size, fields)

    @property
    def headers(self) -> dict[str, str]:
        """Type and length of the body."""
        length = len(self._head()) + self.size + len(self._tail())
        return {
            "Content-Type": f"multipart/form-data; boundary={self.boundary}",
            "Content-Length": str(length),
        }

    def parts(self) -> Iterator[bytes]:
        """Yield the body, of which only a piece is in memory.

        Raises
        ------
        ImageError
            If the file cannot be read, or has become shorter.
        """
        yield self._head()
        left = self.size
        try:
            with self.image.open("rb") as file:
                while left:
                    part = file.read(min(_PART, left))
                    if not part:
                        raise ImageError("has changed while it was sent", self.image)
                    left -= len(part)
                    yield part
        except OSError as error:
            raise ImageError(f"cannot be read: {error.strerror}", self.image) from None
        yield self._tail()

    def _head(self) -> bytes:
        lines = []
        for name, value in self.fields.items():
            text = value if isinstance(value, str) else json.dumps(value)
            lines += [f"--{self.boundary}", f'Content-Disposition: form-data; name="{name}"', ""]
            lines.append(text)
        name = "image.nii.gz" if self.image.name.endswith(".gz") else "image.nii"
        lines += [
            f"--{self.boundary}",
            f'Content-Disposition: form-data; name="file"; filename="{name}"',
            "Content-Type: application/octet-stream",
            "",
            "",
        ]
        return "\r\n".join(lines).encode()

    def _tail(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()
