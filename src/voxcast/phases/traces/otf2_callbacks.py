"""Callbacks that write the records of an OTF2 location into columns.

The library is written in C and calls one function a record. Those that ``otf2`` makes convert
every argument to an object of the package, which takes longer than all else; these are plain.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_double, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COLUMNS = 6  # of a record: code, time, and up to four values
_EVERY_RECORD = (c_uint64, c_uint64, c_uint64, c_void_p, c_void_p)  # location, time, position
_MESSAGE = (c_uint32, c_uint32, c_uint32, c_uint64)
_ITEM_BYTES = 8
# In pieces as small as they are: what is left of six columns is zeros.
_pack_mark = struct.Struct("<2Q32x").pack
_pack_value = struct.Struct("<3Q24x").pack
_pack_message = struct.Struct("<6Q").pack


class Code(IntEnum):
    """Kinds of records that matter here."""

    ENTER = 0  # region
    LEAVE = 1  # region
    SEND = 2  # receiver, communicator, tag, bytes
    RECEIVE = 3  # sender, communicator, tag, bytes
    RECEIVE_REQUEST = 4
    COLLECTIVE_BEGIN = 5
    COLLECTIVE = 6  # operation, communicator, sent bytes, received bytes
    IO = 7  # bytes
    INSTRUCTIONS = 8  # count since the start
    RECEIVE_COMPLETE = 9  # as RECEIVE, of a request


def _mark(code: int, write: Any) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any, *_: int
    ) -> int:
        write(_pack_mark(code, time))
        return 0

    return callback


def _region(code: int, write: Any) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any, region: int
    ) -> int:
        write(_pack_value(code, time, region))
        return 0

    return callback


def _message(code: int, write: Any) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any,
        peer: int, communicator: int, tag: int, size: int, *_request: int,
    ) -> int:  # fmt: skip
        write(_pack_message(code, time, peer, communicator, tag, size))
        return 0

    return callback


def _collective(code: int, write: Any) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any,
        operation: int, communicator: int, _root: int, sent: int, received: int,
    ) -> int:  # fmt: skip
        write(_pack_message(code, time, operation, communicator, sent, received))
        return 0

    return callback


def _io(code: int, write: Any) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any,
        _handle: int, size: int, _matching: int,
    ) -> int:  # fmt: skip
        write(_pack_value(code, time, size if size < 2**63 else 0))  # the largest: unknown
        return 0

    return callback


def _metric(
    code: int, write: Any, counters: Mapping[int, int], type_double: int
) -> Callable[..., int]:
    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any,
        metric: int, _count: int, types: int, values: int,
    ) -> int:  # fmt: skip
        position = counters.get(metric)
        if position is None:
            return 0
        address = values + _ITEM_BYTES * position
        number = c_uint64.from_address(address).value
        if c_uint8.from_address(types + position).value == type_double:
            real = c_double.from_address(address).value
            number = int(real) if 0 <= real < 2**63 else 0
        write(_pack_value(code, time, number))
        return 0

    return callback


def register(
    otf2: Any, handle: Any, reader: Any, write: Any, counters: Mapping[int, int]
) -> list[Any]:
    """Have the records of a location written.

    Parameters
    ----------
    otf2 : module
        ``_otf2``.
    handle, reader : pointers
        Of the archive and of the events of the location.
    write : callable
        Takes the bytes of one record: six little-endian numbers of 8 bytes.
    counters : mapping of int to int
        Position of the instruction counter among the values of a metric.

    Returns
    -------
    list
        What must live as long as records are read.
    """
    callbacks = otf2.EvtReaderCallbacks_New()
    functions = []
    for name, types, function in (
        ("Enter", (c_uint32,), _region(Code.ENTER.value, write)),
        ("Leave", (c_uint32,), _region(Code.LEAVE.value, write)),
        ("MpiSend", _MESSAGE, _message(Code.SEND.value, write)),
        ("MpiIsend", (*_MESSAGE, c_uint64), _message(Code.SEND.value, write)),
        ("MpiRecv", _MESSAGE, _message(Code.RECEIVE.value, write)),
        ("MpiIrecv", (*_MESSAGE, c_uint64), _message(Code.RECEIVE_COMPLETE.value, write)),
        ("MpiIrecvRequest", (c_uint64,), _mark(Code.RECEIVE_REQUEST.value, write)),
        ("MpiCollectiveBegin", (), _mark(Code.COLLECTIVE_BEGIN.value, write)),
        (
            "MpiCollectiveEnd", (c_uint8, c_uint32, c_uint32, c_uint64, c_uint64),
            _collective(Code.COLLECTIVE.value, write),
        ),
        ("IoOperationComplete", (c_uint32, c_uint64, c_uint64), _io(Code.IO.value, write)),
        (
            "Metric", (c_uint32, c_uint8, c_void_p, c_void_p),
            _metric(Code.INSTRUCTIONS.value, write, counters, otf2.TYPE_DOUBLE.value),
        ),
    ):  # fmt: skip
        pointer = ctypes.CFUNCTYPE(c_int, *_EVERY_RECORD, *types)(function)
        # By index: a function of its own, without the types that the package demands.
        setter = otf2.Config.conf.lib[f"OTF2_EvtReaderCallbacks_Set{name}Callback"]
        setter.argtypes = c_void_p, type(pointer)
        setter(ctypes.cast(callbacks, c_void_p), pointer)
        functions.append(pointer)
    otf2.Reader_RegisterEvtCallbacks(handle, reader, callbacks, None)
    otf2.EvtReaderCallbacks_Delete(callbacks)
    return functions
