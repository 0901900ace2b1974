"""The time a campaign still takes, from the expected times and the runs measured so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.records import Cell

if TYPE_CHECKING:
    from collections.abc import Mapping

# Weight of the first expectation, in seconds: one unusual run does not dominate.
PRIOR_S = 10.0

Group = tuple[str, str, str, int]


class TimeLeft:
    """Expected seconds of cells, corrected by the runs that are done.

    Parameters
    ----------
    cells : mapping
        The cells to measure, by key.
    expected_s : mapping
        Expected seconds by key, before anything is measured; 1 where it is not known.
    """

    def __init__(self, cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> None:
        self._expected_s: dict[str, float] = {}
        self._left_s: dict[Group, float] = {}
        self._done_s: dict[Group, float] = {}
        self._took_s: dict[Group, float] = {}
        for key, cell in cells.items():
            self.add(key, cell, expected_s.get(key, 1.0))

    def add(self, key: str, cell: Cell, expected_s: float) -> None:
        """Add a cell."""
        group = _group(cell)
        self._expected_s[key] = expected_s
        self._left_s[group] = self._left_s.get(group, 0.0) + expected_s

    def finish(self, key: str, cell: Cell, took_s: float) -> None:
        """Count a cell that took ``took_s`` seconds in all."""
        group, expected_s = _group(cell), self._expected_s[key]
        self._left_s[group] -= expected_s
        self._done_s[group] = self._done_s.get(group, 0.0) + expected_s
        self._took_s[group] = self._took_s.get(group, 0.0) + took_s

    def drop(self, key: str, cell: Cell) -> None:
        """Drop a cell that will not be measured."""
        self._left_s[_group(cell)] -= self._expected_s[key]

    def cell_s(self, key: str, cell: Cell) -> float:
        """Return the seconds that one cell is now expected to take."""
        return self._expected_s[key] * self._factor(_group(cell))

    def raw(self, key: str) -> float:
        """Return the seconds that a cell was expected to take at first."""
        return self._expected_s[key]

    def total_s(self) -> float:
        """Return the seconds that all cells left are now expected to take, one after the other."""
        return sum(left_s * self._factor(group) for group, left_s in self._left_s.items())

    def _factor(self, group: Group) -> float:
        took_s, done_s = self._took_s.get(group), self._done_s.get(group)
        if took_s is None or done_s is None:  # no run of its group is measured yet: as the others
            took_s, done_s = sum(self._took_s.values()), sum(self._done_s.values())
        return (took_s + PRIOR_S) / (done_s + PRIOR_S)


def _group(cell: Cell) -> Group:
    return cell.app, cell.scale, cell.configuration.device, cell.configuration.cpus
