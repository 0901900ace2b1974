"""What a content cache holds, and how often it was of use; see `voxcast.content_cache`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.content_cache import COUNTS, DAMAGED, HIT, MISS, NOT_STORED, entries_of
from voxcast.quantities import format_bytes
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class CacheStatus:
    """A cache at one moment.

    Attributes
    ----------
    processes : int
        Number of processes that have used it.
    events : dict
        Number of hits, misses, damaged entries, and entries that could not be stored, by function.
    """

    folder: str
    entries: int
    size_bytes: int
    processes: int
    events: dict[str, dict[str, int]]

    def summary(self) -> dict[str, Any]:
        """Return it as JSON, with the share of lookups that were hits; None without any."""
        total: Counter[str] = Counter()
        for counts in self.events.values():
            total.update(counts)
        functions = {
            name: counts | {"hit_rate": hit_rate(counts)} for name, counts in self.events.items()
        }
        return vars(self) | {"events": functions, "hit_rate": hit_rate(total)}

    def text_lines(self) -> Iterator[str]:
        """Yield the lines of ``voxcast status``."""
        summary = self.summary()
        rate = _percent(summary["hit_rate"])
        size = f"{self.entries} entries, {format_bytes(self.size_bytes)}"
        yield f"cache {self.folder}: {size}, used by {self.processes} processes, hit rate {rate}"
        if self.events:
            head = ("function", "hits", "misses", "damaged", "not stored", "hit rate")
            rows = [
                (name, *(str(counts.get(event, 0)) for event in (HIT, MISS, DAMAGED, NOT_STORED)),
                 _percent(hit_rate(counts)))
                for name, counts in self.events.items()
            ]  # fmt: skip
            yield text_table([head, *rows], "<>>>>>")


def cache_status(folder: Path) -> CacheStatus:
    """Return entries and counts of the cache in `folder`; nothing is changed."""
    events: dict[str, Counter[str]] = {}
    count_files = list((folder / COUNTS).iterdir())
    for path in count_files:
        for line in path.read_text(encoding="utf-8").splitlines():
            event, _, function = line.partition(" ")
            if function and " " not in function:  # else cut short by a full disk
                events.setdefault(function, Counter())[event] += 1
    sizes = [entry.size_bytes for entry in entries_of(folder)]
    return CacheStatus(
        folder=str(folder),
        entries=len(sizes),
        size_bytes=sum(sizes),
        processes=len(count_files),
        events={function: dict(events[function]) for function in sorted(events)},
    )


def hit_rate(counts: Mapping[str, int]) -> float | None:
    """Return hits over lookups; None without any.

    Examples
    --------
    >>> hit_rate({"hit": 3, "miss": 1})
    0.75
    """
    lookups = sum(counts.get(event, 0) for event in (HIT, MISS, DAMAGED))
    return counts.get(HIT, 0) / lookups if lookups else None


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f} %"
