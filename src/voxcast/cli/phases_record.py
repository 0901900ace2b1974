"""``voxcast phases record``: record the communication of a Python program under mpirun."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.cli import options
from voxcast.errors import ConfigError, RunError
from voxcast.quantities import counted, format_seconds

if TYPE_CHECKING:
    from voxcast.phases.events import EventTable

FAILED = 1
INTERPRETER = re.compile(r"python[0-9.]*")
WITH_VALUE = ("-W", "-X")
THEN = "voxcast phases record --out DIR -- mpirun -np 4 python program.py"
COMPUTATION = {
    "cpu_ns": "CPU time",
    "elapsed_ns": "the time between them",
    "instructions": "in instructions",
}
UNDER_MPIRUN = "run programs with mpi4py under mpirun or srun"
OTHERS = "record other programs with EZTrace or Score-P, torchrun's with the profiler of PyTorch"


def record(
    command: Annotated[
        list[str],
        Argument(metavar="-- COMMAND...", help="E.g. mpirun -np 4 python program.py."),
    ],
    out: Annotated[Path, Option("--out", metavar="DIR", help="New folder of the trace.")],
    as_json: options.Json = False,
) -> int:
    """Run a command, and record the communication of its Python processes."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError("is there already", out, "name a new folder")
    code = _run(recorded(command, out.absolute()))

    from voxcast.phases.events import Kind, read_trace

    table = read_trace(out)
    _show(table, as_json=as_json)
    if (table["kind"] == Kind.LOCAL).all():
        print(f"voxcast: {out}: no communication was recorded; {UNDER_MPIRUN}; {OTHERS}",
              file=sys.stderr)  # fmt: skip
    if code:
        print(f"voxcast: the command ended with code {code}", file=sys.stderr)
    return FAILED if code else 0


def recorded(command: list[str], folder: Path) -> list[str]:
    """Return a command with the recorder before the program of each Python interpreter."""
    from voxcast.phases import recorder as mpi_recorder

    recorder = [mpi_recorder.__file__, "--out", str(folder)]
    result: list[str] = []
    words = iter(command)
    seen = False
    for word in words:
        result.append(word)
        if not INTERPRETER.fullmatch(Path(word).name):
            continue
        program = next(words, None)
        while program is not None and program.startswith("-") and program not in ("-m", "-c"):
            result.append(program)
            if program in WITH_VALUE:
                result.append(next(words, ""))
            program = next(words, None)
        if program is None or program == "-c":
            raise ConfigError("runs no file or module", word, THEN)
        result += [*recorder, program]
        seen = True
        for rest in words:  # up to the next program of mpirun
            result.append(rest)
            if rest == ":":
                break
    if not seen:
        raise ConfigError("starts no python", command[0], f"{THEN}; {OTHERS}")
    return result


def _run(command: list[str]) -> int:
    try:
        # Results of the program are not ours: they go where messages go.
        return subprocess.run(command, stdout=sys.stderr, check=False).returncode
    except FileNotFoundError:
        raise RunError("no such program", command[0], THEN) from None


def _show(table: EventTable, *, as_json: bool) -> None:
    import numpy as np

    from voxcast.phases.events import NS_PER_S, Kind

    span_s = (table.end_ns - table.start_ns) / NS_PER_S
    in_events_s = np.bincount(
        table["process"], (table["end_ns"] - table["start_ns"]) / NS_PER_S, len(table.processes)
    )
    total_s = float(span_s.sum())
    share = float(in_events_s.sum()) / total_s if total_s > 0 else 0.0
    longest_s = float(span_s.max(initial=0.0))
    kinds = np.bincount(table["kind"], minlength=len(Kind))
    content = {
        "trace": table.source,
        "processes": len(table.processes),
        "events": len(table),
        **{f"{kind.name.lower()}_events": int(kinds[kind]) for kind in Kind},
        "longest_s": longest_s,
        "share_in_events": share,
        "computation_unit": table.computation_unit,
        "missing": list(table.missing),
    }
    if as_json:
        print(json.dumps(content, indent=2))
        return
    counts = ", ".join(f"{kinds[kind]} {kind.name.lower()}" for kind in Kind if kinds[kind])
    print(
        f"{table.source}: {counted(len(table.processes), 'process')}, "
        f"{counted(len(table), 'event')}" + f" ({counts})" * bool(len(table))
    )
    print(f"  {format_seconds(longest_s)} long; {share:.1%} of the time of all processes in these "
          f"events; computation is {COMPUTATION[table.computation_unit]}")  # fmt: skip
    for text in table.missing:
        print(f"  missing: {text}")
