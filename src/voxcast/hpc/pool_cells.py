"""The cells of a pool, and the files that list them: one JSON object a line, its key first.

Any machine may run a cell, so that its host class is left open; the record of a run has that of
the machine it ran on.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError
from voxcast.files import atomic_path
from voxcast.jobs.escalate import RequestSequence
from voxcast.records import Cell, as_fields, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BEFORE_KEY = b'{"key": "'


@dataclass(frozen=True)
class PoolCell:
    """A cell of a pool.

    Attributes
    ----------
    cell : Cell
        Its `host_class` is empty.
    requests : RequestSequence
        The times and memories that its attempts ask for.
    expected_s : float
        Expected wall time.
    part_of : str
        Key of the cell that it is a part of; empty for a complete cell.
    """

    cell: Cell
    requests: RequestSequence
    expected_s: float
    part_of: str = ""

    def __post_init__(self) -> None:
        if self.cell.host_class:
            raise ValueError("a cell of a pool leaves the host class open")

    @property
    def key(self) -> str:
        """Key of the cell in the pool."""
        return self.cell.key

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> PoolCell:
        """Return the cell with the fields that `to_record` gave."""
        return cls(
            of_fields(Cell, fields["cell"]), of_fields(RequestSequence, fields["requests"]),
            float(fields["expected_s"]), str(fields["part_of"]),
        )  # fmt: skip

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return {
            "cell": as_fields(self.cell),
            "requests": as_fields(self.requests),
            "expected_s": self.expected_s,
            "part_of": self.part_of,
        }


def write_cells(path: Path, cells: Iterable[PoolCell]) -> None:
    """Write cells, one line each."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8") as stream:
        for pool_cell in cells:
            json.dump({"key": pool_cell.key, **pool_cell.to_record()}, stream)
            stream.write("\n")


def read_cells(path: Path) -> dict[str, PoolCell]:
    """Read what `write_cells` wrote, by key.

    Raises
    ------
    RunError
        If the file is damaged.
    """
    with _intact(path), path.open("rb") as stream:
        return dict(map(_cell, stream))


class CellList(Mapping[str, PoolCell]):
    """A list of cells that keeps in memory where each begins, and reads it when it is asked for.

    A worker runs a few of its pool's cells. To know all 10^5 would take it seconds and 150 MB.

    Parameters
    ----------
    path : Path
        Written by `write_cells`, and not changed afterwards.

    Raises
    ------
    RunError
        If the file is damaged; also where a cell is asked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts: dict[str, int] = {}
        start = 0
        with _intact(path), path.open("rb") as stream:
            for line in stream:
                self._starts[_key(line)] = start
                start += len(line)

    def __getitem__(self, key: str) -> PoolCell:
        start = self._starts[key]
        with _intact(self._path), self._path.open("rb") as stream:
            stream.seek(start)
            return _cell(stream.readline())[1]

    def __contains__(self, key: object) -> bool:
        return key in self._starts

    def __iter__(self) -> Iterator[str]:
        return iter(self._starts)

    def __len__(self) -> int:
        return len(self._starts)


def _cell(line: bytes) -> tuple[str, PoolCell]:
    fields = json.loads(line)
    return str(fields["key"]), PoolCell.from_record(fields)


def _key(line: bytes) -> str:
    if line.startswith(_BEFORE_KEY) and line.endswith(b"}\n"):
        return line[len(_BEFORE_KEY) : line.index(b'"', len(_BEFORE_KEY))].decode("ascii")
    return _cell(line)[0]  # of an earlier release; damaged, if it cannot be read


@contextlib.contextmanager
def _intact(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"a damaged list of cells ({error!r})", path, "make the pool again"
        ) from None
