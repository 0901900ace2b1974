"""The cells of a pool, and the files that list them.

Any machine may run a cell, so that its host class is left open; the record of a run has that of
the machine it ran on.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError
from voxcast.files import atomic_path
from voxcast.hpc.escalation import Ladder
from voxcast.records import Cell

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class PoolCell:
    """A cell of a pool.

    Attributes
    ----------
    cell : Cell
        Its `host_class` is empty.
    ladder : Ladder
        The times and memories that its attempts ask for.
    expected_s : float
        Expected wall time.
    part_of : str
        Key of the cell that it is a part of; empty for a complete cell.
    """

    cell: Cell
    ladder: Ladder
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
        ladder: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v for n, v in fields["ladder"].items()
        }
        return cls(
            Cell.from_record(fields["cell"]), Ladder(**ladder), float(fields["expected_s"]),
            str(fields["part_of"]),
        )  # fmt: skip

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return {
            "cell": self.cell.to_record(),
            "ladder": dataclasses.asdict(self.ladder),
            "expected_s": self.expected_s,
            "part_of": self.part_of,
        }


def write_cells(path: Path, cells: Iterable[PoolCell]) -> None:
    """Write cells, one line each."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8") as stream:
        for pool_cell in cells:
            json.dump({"key": pool_cell.key, **pool_cell.to_record()}, stream, sort_keys=True)
            stream.write("\n")


def read_cells(path: Path) -> dict[str, PoolCell]:
    """Read what `write_cells` wrote, by key.

    Raises
    ------
    RunError
        If the file is damaged.
    """
    cells = {}
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                fields = json.loads(line)
                cells[str(fields["key"])] = PoolCell.from_record(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"a damaged list of cells ({error!r})", path, "make the pool again"
        ) from None
    return cells
