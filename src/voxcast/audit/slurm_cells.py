"""Cells of Slurm's accounting as arrays.

Each parser is that of `voxcast.history.imports.sacct`, called once for each distinct text. Where
most texts are distinct, the usual form of a text is parsed by Arrow, and only the others one by
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from voxcast.errors import VoxcastError
from voxcast.runs.delimited import finite, integer
from voxcast.history.imports.sacct import ABSENT, memory_of, moment, tres_of
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Fast = Callable[[pa.StringArray], Floats]

FEW = 1000  # distinct texts that are parsed one by one without a loss
_CLOCK = (
    r"^(?:(?:(?P<d>[0-9]{1,6})-)?(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,3}):"
    r"(?P<s>[0-9]{1,2}(?:\.[0-9]{1,9})?)$"
)
_SIZE = r"^(?P<v>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<u>[KkMmGgTt]?)$"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_INTEGER = r"^(?P<v>[0-9]{1,15})$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"


def stated_cells(cells: pa.StringArray) -> pa.StringArray:
    """Return the cells, null where the value is not stated."""
    distinct = cells.dictionary_encode()
    stated = [None if t.lower() in ABSENT else t for t in distinct.dictionary.to_pylist()]
    return pa.array(stated, type=pa.string()).take(distinct.indices)


def seconds(cells: pa.StringArray) -> tuple[Floats, NDArray[np.bool_]]:
    """Return durations in seconds, NaN where unknown, and which of them cannot be read."""
    return parsed(cells, slurm_seconds, _clock_seconds)


def bytes_of(cells: pa.StringArray) -> tuple[Floats, NDArray[np.bool_]]:
    """Return sizes in bytes; see `seconds`."""
    return parsed(cells, memory_of, _sizes)


def integers(cells: pa.StringArray) -> tuple[Floats, NDArray[np.bool_]]:
    """Return integers; see `seconds`."""
    return parsed(cells, integer, _integers)


def numbers(cells: pa.StringArray) -> tuple[Floats, NDArray[np.bool_]]:
    """Return finite numbers; see `seconds`."""
    return parsed(cells, finite, _integers)


def moments(cells: pa.StringArray) -> tuple[Floats, NDArray[np.bool_]]:
    """Return moments in seconds of the cluster's own clock; see `seconds`."""
    return parsed(cells, lambda text: moment(text)[1], _clock_times)


def parsed(
    cells: pa.StringArray, parse: Callable[[str], float | None], fast: Fast | None = None
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the value of each cell by ``parse``, and which cells it refuses.

    Parameters
    ----------
    cells : StringArray
        Null where unknown.
    fast : callable, optional
        Parses an array of distinct texts; NaN for what it leaves to ``parse``.
    """
    distinct = cells.dictionary_encode()
    texts, indices = distinct.dictionary, distinct.indices
    values = np.full(len(texts) + 1, np.nan)  # the last is that of an unknown cell
    refused = np.zeros(len(texts) + 1, dtype=bool)
    if fast is not None and len(texts) > FEW:
        values[:-1] = fast(texts)
    for n in np.flatnonzero(np.isnan(values[:-1])):
        try:
            value = parse(texts[int(n)].as_py())
            values[n] = np.nan if value is None else value
        except (VoxcastError, ValueError, OverflowError, OSError):
            refused[n] = True
    places = indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return values[places], refused[places]


class Tres:
    """Amounts of trackable resources, such as ``cpu=2,mem=8G,node=1``, by column.

    Attributes
    ----------
    cpus, memory_bytes, nodes, gpus : ndarray of float
        NaN where the text does not state it.
    stated : ndarray of bool
        Where the text has an amount of anything.
    refused : ndarray of bool
        Where it cannot be read.
    """

    def __init__(self, cells: pa.StringArray) -> None:
        distinct = cells.dictionary_encode()
        texts = distinct.dictionary
        amounts = np.full((len(texts) + 1, 4), np.nan)
        stated = np.zeros(len(texts) + 1, dtype=bool)
        refused = np.zeros(len(texts) + 1, dtype=bool)
        slow: Any = np.arange(len(texts))
        if len(texts) > FEW:
            amounts[:-1], stated[:-1], regular = _tres_columns(texts)
            slow = np.flatnonzero(~regular)
        for n in slow:
            try:
                fields = tres_of(texts[int(n)].as_py())
            except (VoxcastError, ValueError, OverflowError):
                amounts[n], stated[n], refused[n] = np.nan, False, True
                continue
            stated[n] = bool(fields)
            amounts[n] = [fields.get(k, np.nan) for k in ("cpu", "mem", "node", "gres/gpu")]
        places = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        self.cpus, self.memory_bytes, self.nodes, self.gpus = amounts[places].T
        self.stated, self.refused = stated[places], refused[places]


def _tres_columns(texts: pa.StringArray) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the four amounts of texts, whether there is any, and which texts are regular."""
    columns = []
    for name in ("cpu", "node", "gres/gpu"):
        amount = pc.extract_regex(texts, rf"(?:^|,){name}=(?P<v>[0-9]{{1,15}})(?:,|$)")
        columns.append(_floats(pc.struct_field(amount, "v")))
    memory_text = pc.struct_field(pc.extract_regex(texts, r"(?:^|,)mem=(?P<v>[^,]*)"), "v")
    memory = _sizes(memory_text)
    has_memory = _true(memory_text.is_valid())
    by_type = _true(pc.match_substring(texts, "gres/gpu:"))
    twice = _true(pc.greater(pc.count_substring(texts, "mem="), 1))
    regular = ~by_type & ~twice & ~(has_memory & np.isnan(memory))
    stated = _true(pc.match_substring_regex(texts, r"=[0-9]{1,15}(?:,|$)")) | has_memory
    cpus, nodes, gpus = columns
    return np.column_stack([cpus, memory, nodes, gpus]), stated, regular


def _clock_seconds(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _CLOCK)
    days, hours, minutes, rest = (_floats(pc.struct_field(fields, name)) for name in "dhms")
    whole_hours: Floats = np.nan_to_num(days) * 86400 + np.nan_to_num(hours) * 3600
    total: Floats = whole_hours + minutes * 60 + rest
    return total


def _sizes(texts: pa.StringArray) -> Floats:
    fields = pc.extract_regex(texts, _SIZE)
    value, unit = _floats(pc.struct_field(fields, "v")), pc.struct_field(fields, "u")
    encoded = pc.utf8_lower(unit).dictionary_encode()
    factors = np.array([_UNITS[u] for u in encoded.dictionary.to_pylist()] + [np.nan])
    places = encoded.indices.fill_null(len(factors) - 1).to_numpy(zero_copy_only=False)
    sizes: Floats = np.rint(value * factors[places])
    return sizes


def _integers(texts: pa.StringArray) -> Floats:
    return _floats(pc.struct_field(pc.extract_regex(texts, _INTEGER), "v"))


def _clock_times(texts: pa.StringArray) -> Floats:
    usual = pc.match_substring_regex(texts, _MOMENT)
    times = pc.strptime(
        pc.if_else(usual, texts, None), format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True
    )
    since = times.cast(pa.int64()).cast(pa.float64())
    seconds = np.asarray(since.to_numpy(zero_copy_only=False), dtype=np.float64)
    # It takes 30 February for 2 March, and a 61st second for the next minute.
    for start, part in ((8, pc.day(times)), (17, pc.second(times))):
        written = _integers(pc.utf8_slice_codeunits(texts, start, start + 2))
        read = part.cast(pa.float64()).to_numpy(zero_copy_only=False)
        seconds = np.where(written == read, seconds, np.nan)
    return seconds


def _floats(texts: pa.StringArray) -> Floats:
    """Return numbers, NaN for null and empty texts."""
    filled = pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.float64())
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)


def _true(mask: Any) -> NDArray[np.bool_]:
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)
