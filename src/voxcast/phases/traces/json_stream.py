"""Reads the members of a JSON object that is too large for memory, one after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

CHUNK_CHARACTERS = 1 << 16
MAX_VALUE_CHARACTERS = 1 << 24  # of one value; a larger one is taken for damage


class JsonStream:
    """Values of a text, decoded as they are asked for; memory is that of a few chunks.

    All methods raise ValueError where the text is no JSON or ends.
    """

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._decoder = json.JSONDecoder()
        self._buffer = ""
        self._position = 0

    def members(self, array: str) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each member of the object.

        Parameters
        ----------
        array : str
            A member whose elements are yielded one by one under its name.
        """
        self._take("{")
        if self._next() == "}":
            return
        while True:
            name = self._value()
            self._take(":")
            if name == array:
                for element in self._elements():
                    yield name, element
            else:
                yield name, self._value()
            if self._take(",}") == "}":
                return

    def _elements(self) -> Iterator[Any]:
        self._take("[")
        if self._next() == "]":
            self._take("]")
            return
        while True:
            yield self._value()
            if self._take(",]") == "]":
                return

    def _next(self) -> str:
        """Return the next character that is no space, without taking it."""
        while True:
            while self._position < len(self._buffer):
                if not self._buffer[self._position].isspace():
                    return self._buffer[self._position]
                self._position += 1
            self._read()

    def _take(self, characters: str) -> str:
        character = self._next()
        if character not in characters:
            raise ValueError(f"{character!r} where {characters!r} was expected")
        self._position += 1
        return character

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._position)
                # A number at the end of the buffer may go on.
                if end < len(self._buffer):
                    self._position = end
                    return value
            except json.JSONDecodeError:
                if len(self._buffer) - self._position > MAX_VALUE_CHARACTERS:
                    raise
            self._read()

    def _read(self) -> None:
        chunk = self._text.read(CHUNK_CHARACTERS)
        if not chunk:
            raise ValueError("the text ends too early")
        self._buffer = self._buffer[self._position :] + chunk
        self._position = 0
