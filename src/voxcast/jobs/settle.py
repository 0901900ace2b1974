"""The cells of a pool after their runs: recorded, or tried again with more, or split.

The ledger is a fold over the events of the pool, and the only writer of events and of runs on
record; the process that has it holds the claim of the pool. An event is written before the step
that it describes, and each step may be repeated: a process that is killed at any moment is
continued by the next one from the folder.

An application says how it can be split, see `voxcast.records.App.split`. Parts are cells like
others, and may be split again. Their runs are kept apart in ``part_runs``: the history gets the
joined run alone, whose times are sums, and whose memory is the largest of its parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError, TableError
from voxcast.files import canonical_json, json_text, read_json, remove_folder, sync
from voxcast.jobs.claim import claimed, is_abandoned
from voxcast.jobs.escalate import Attempt, next_request
from voxcast.jobs.pool import ENDED, HELD, PARTIAL, RESULT_FILE, TODO, PoolCell, Ticket
from voxcast.jobs.submission import append_event, read_events
from voxcast.measure.leftovers import sweep
from voxcast.measure.runner import LOG_FILE
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Request, as_fields, of_fields
from voxcast.runs.series import RECORD_FILE, read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.claim import Claim
    from voxcast.jobs.pool import Pool
    from voxcast.records import App, Outcome, Phase, Run

LOST = "its worker has gone"
JOINED = "joined~0"
MACHINE = (
    "host_id", "host_class", "cpu_model", "sitting", "probe_cpu", "probe_membw", "probe_disk",
)  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolState:
    """Numbers of cells by state."""

    cells: int
    recorded: int
    waiting: int
    running: int
    given_up: int
    split: int

    @property
    def left(self) -> int:
        """Cells that are to be run, or are being run."""
        return self.waiting + self.running + self.split

    def text(self) -> str:
        """Write it in one line."""
        return (
            f"{self.recorded} of {self.cells} cells done, {self.running} running, "
            f"{self.waiting} waiting, {self.given_up} given up"
        )


class Ledger:
    """Where the cells of a pool stand, by its events.

    Parameters
    ----------
    pool : Pool
    claim : Claim, optional
        The right to follow the pool, without which nothing may be written.
    """

    def __init__(self, pool: Pool, claim: Claim | None = None) -> None:
        self.pool, self._claim = pool, claim
        self.cells = pool.cells()
        self.attempts: dict[str, list[Attempt]] = {}
        self.recorded: dict[str, str] = {}  # key of the record by key of the cell
        self.given_up: dict[str, str] = {}  # the reason
        self.parts: dict[str, list[str]] = {}
        self._changed = False
        self._settled: dict[str, str] = {}  # key of the record by run; empty for a failure
        for event in read_events(pool.events):
            self._apply(event)

    def state(self) -> PoolState:
        """Return how many cells are in which state."""
        held = {Ticket.from_name(name).key for name in self.pool.names(HELD)}
        ended = self.recorded.keys() | self.given_up.keys()
        split = self.parts.keys() - ended
        open_cells = self.cells.keys() - ended - split
        undivided = [key for key, cell in self.cells.items() if not cell.part_of]
        return PoolState(
            len(undivided), sum(key in self.recorded for key in undivided), len(open_cells - held),
            len(open_cells & held), len(self.given_up), len(split),
        )  # fmt: skip

    def requests(self) -> dict[str, Request]:
        """Return the requests of the cells that wait, by key."""
        waiting = {Ticket.from_name(name).key for name in self.pool.names(TODO)}
        steps = {key: self._next(key) for key in waiting if key in self.cells}
        return {key: step for key, step in steps.items() if isinstance(step, Request)}

    def add(self, cells: Iterable[PoolCell]) -> int:
        """Add the cells that the pool does not have yet; return their number."""
        new = {cell.key: cell for cell in cells if cell.key not in self.cells}
        if new:
            self.pool.list_cells(new.values())
            self.cells |= new
            self.settle()
        return len(new)

    def retry(self) -> int:
        """Let the cells wait again that were given up; their attempts count no more."""
        keys = list(self.given_up)
        for key in keys:
            self._record(event="retried", key=key)
        self.settle()
        return len(keys)

    def settle(self, ended_jobs: Mapping[str, Outcome] | None = None) -> bool:
        """Settle runs that workers left; return whether there were any.

        Parameters
        ----------
        ended_jobs : mapping, optional
            How jobs have ended by their number, ``JOB_TASK`` in an array.
        """
        pool = self.pool
        self._changed = False
        # In the order in which tickets move, and those returned last: none is overlooked.
        todo, held = set(pool.names(TODO)), pool.names(HELD)
        ended = pool.names(ENDED)
        todo |= set(pool.names(TODO))
        waiting = {Ticket.from_name(name).key: name for name in todo}
        for run in sorted(ended):
            self._take_in(run, waiting)
        lives: set[str] = set()
        for run in held:
            if not self._is_lost(run, ended_jobs or {}):
                lives.add(run)
        self._sweep(lives)
        running = {Ticket.from_name(run).key for run in lives}
        for key in list(self.cells):
            if key not in waiting and key not in running:
                self._place(key)
        for key in self.parts.keys() - self.recorded.keys():
            if all(part in self.recorded for part in self.parts[key]):
                self._take_in(self._join(key), {})
        return self._changed

    def _next(self, key: str) -> object:
        limits = self.pool.settings.limits
        return next_request(self.cells[key].requests, self.attempts.get(key, []), limits)

    def _record(self, **event: Any) -> None:
        if self._claim is not None:
            self._claim.touch()
        append_event(self.pool.events, event)
        self._changed = True
        self._apply(event)

    def _apply(self, event: Mapping[str, Any]) -> None:
        key, kind = event["key"], event["event"]
        if kind == "recorded":
            self.recorded[key] = self._settled[event["run"]] = event["record"]
            self.given_up.pop(key, None)
        elif kind == "ended":
            self.attempts.setdefault(key, []).append(of_fields(Attempt, event["attempt"]))
            self._settled[event["run"]] = ""
        elif kind == "split":
            parts = [of_fields(PoolCell, fields) for fields in event["parts"]]
            self.parts[key] = [part.key for part in parts]
            self.cells |= {part.key: part for part in parts}
        elif kind == "given up":
            self.given_up[key] = event["reason"]
        elif kind == "retried":
            self.given_up.pop(key, None)
            self.attempts.pop(key, None)

    def _take_in(self, run: str, waiting: dict[str, str]) -> None:
        """Record a run that has ended, and move it to its place, or remove it."""
        pool, key = self.pool, Ticket.from_name(run).key
        folder = pool.place(ENDED, run)
        if run not in self._settled and key in self.cells and key not in self.recorded:
            try:
                result = read_json(folder / RESULT_FILE)
            except (OSError, ValueError):  # the machine crashed before it was on disk
                result = {"record": "", "attempt": None, "cause": LOST}
            if result["record"]:
                self._record(event="recorded", key=key, run=run, record=result["record"])
            else:
                self._fail(run, result)
        record, cell = self._settled.get(run), self.cells.get(key)
        if record and cell is not None:
            self._move(folder, pool.folder / ("part_runs" if cell.part_of else "runs") / record)
        else:
            remove_folder(folder)
        pool.place(HELD, run).unlink(missing_ok=True)
        if key in self.recorded and key in waiting:  # it was given up too early
            pool.place(TODO, waiting.pop(key)).unlink(missing_ok=True)

    def _move(self, folder: Path, final: Path) -> None:
        try:
            folder.rename(final)
        except OSError:
            try:  # there is a record from before the pool, and complete ones are not replaced
                read_record(final)
                remove_folder(folder)
            except TableError:
                remove_folder(final)
                folder.rename(final)
        sync(final.parent)

    def _fail(self, run: str, result: Mapping[str, Any]) -> None:
        """Record an attempt that ended without a record."""
        ticket = Ticket.from_name(run)
        attempt = result["attempt"]
        if attempt is None:
            step = self._next(ticket.key)
            if not isinstance(step, Request):
                step = self.attempts[ticket.key][-1].request
            attempt = as_fields(Attempt(step, result.get("outcome", "node_failure")))
        self._record(
            event="ended", key=ticket.key, run=run, attempt=attempt, cause=result["cause"],
            worker=result.get("worker", ""), log_tail=result.get("log_tail", ""),
        )  # fmt: skip
        cell = self.cells[ticket.key].cell
        subject = f" sub-{cell.subject}" if cell.subject else ""
        name = f"{cell.app}{subject}, {cell.configuration.label}: {result['cause']}"
        following = self._next(ticket.key)
        if isinstance(following, Request):
            walltime, memory = following.walltime_s, following.memory_bytes
            request = f"{format_seconds(walltime)} and {format_bytes(memory)}"
            logger.warning("%s; it waits again, with %s", name, request)
        else:
            logger.warning("%s", name)

    def _is_lost(self, run: str, ended_jobs: Mapping[str, Outcome]) -> bool:
        """Return whether a ticket is held by no worker that lives; then it is returned."""
        pool = self.pool
        worker = run.split("~")[1]
        path = pool.workers / f"{worker}.json"
        outcome = ended_jobs.get(_job_of(path))
        if outcome is None and path.exists() and not is_abandoned(path):
            return False
        if pool.place(ENDED, run).exists() or not pool.place(HELD, run).exists():
            return True  # it ended, or was returned, since the folders were listed
        if Ticket.from_name(run).key not in self.recorded and run not in self._settled:
            # The worker ends its runs before the time of its job: only memory is the run's.
            cause = "out_of_memory" if outcome == "out_of_memory" else "node_failure"
            self._fail(run, {"attempt": None, "outcome": cause, "cause": LOST, "worker": worker})
        pool.place(HELD, run).unlink(missing_ok=True)
        return True

    def _sweep(self, lives: set[str]) -> None:
        """Remove the folders of runs whose workers are gone, and stop what still runs there."""
        for name in self.pool.names(PARTIAL):
            path = self.pool.workers / f"{name.partition('~')[2].partition('~')[0]}.json"
            if name not in lives and "~" in name and (not path.exists() or is_abandoned(path)):
                with contextlib.suppress(OSError):
                    sweep(self.pool.place(PARTIAL, name))

    def _place(self, key: str) -> None:
        """Give a cell without a ticket what follows: a ticket, parts, or an end."""
        if key in self.recorded or key in self.given_up or key in self.parts:
            return
        cell, step = self.cells[key], self._next(key)
        if isinstance(step, Request):
            self.pool.put(cell, len(self.attempts.get(key, [])), step)
            self._changed = True
            return
        last = self.attempts[key][-1]
        name = f"{cell.cell.app}, {cell.cell.configuration.label}"
        if last.outcome == "timeout":
            took_s = last.request.walltime_s
            longest_s = min(self.pool.settings.limits.max_walltime_s, took_s)
            app = self.pool.settings.apps[cell.cell.app]
            if parts := parts_of(cell, app, took_s, longest_s):
                self._record(event="split", key=key, parts=[as_fields(part) for part in parts])
                logger.warning("%s; split into %d parts", name, len(parts))
                for part in parts:
                    self._place(part.key)
                return
        self._record(event="given up", key=key, reason=getattr(step, "reason", ""))
        logger.warning("%s: given up: %s", name, self.given_up[key])

    def _join(self, key: str) -> str:
        """Make one run of the runs of all parts, as if it had just ended; return its name."""
        pool = self.pool
        folders = [pool.folder / "part_runs" / self.recorded[part] for part in self.parts[key]]
        records = [read_record(folder) for folder in folders]
        longest = max(range(len(records)), key=lambda n: records[n].run.runtime_s or 0.0)
        cell = self.cells[key].cell
        joined = dataclasses.replace(cell, host_class=records[longest].cell.host_class)
        merged, phases = joined_run([(record.run, record.phases) for record in records], longest)
        machines = {record.cell.host_class for record in records}
        merged = dataclasses.replace(
            merged, cell_key=joined.key, parameters_json=canonical_json(joined.parameters),
            noisy=merged.noisy or len(machines) > 1,
        )  # fmt: skip
        request = self.cells[key].requests.first
        run = f"{Ticket.of(key, len(self.attempts[key]), request).name}~{JOINED}"
        for place in (PARTIAL, ENDED):
            shutil.rmtree(pool.place(place, run), ignore_errors=True)
        partial = pool.place(PARTIAL, run)
        _copy_results(partial, folders)
        content = records[longest].content | {
            "run": as_fields(merged), "cell": as_fields(joined),
            "phases": [as_fields(phase) for phase in phases],
            "parts": [folder.name for folder in folders],
        }  # fmt: skip
        (partial / RECORD_FILE).write_text(json_text(content), encoding="utf-8")
        (partial / RESULT_FILE).write_text(json.dumps({"record": joined.key}), encoding="utf-8")
        pool.end(run)
        return run


def settle_unfollowed(pool: Pool) -> bool:
    """Settle runs that workers left if the pool has no follower; return whether there were any."""
    try:
        with claimed(pool.folder) as claim:
            return Ledger(pool, claim).settle()
    except RunError:
        return False


def _job_of(worker: Path) -> str:
    """Return the number of the job of a worker; empty for other processes."""
    try:
        job = read_json(worker)["job"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if "SLURM_ARRAY_TASK_ID" in job:
        return f"{job['SLURM_ARRAY_JOB_ID']}_{job['SLURM_ARRAY_TASK_ID']}"
    return str(job.get("SLURM_JOB_ID", ""))


def items(app: App, parameters: Mapping[str, Any]) -> range:
    """Return the items that a run goes through; one where it cannot be split.

    Examples
    --------
    >>> from voxcast.records import App
    >>> app = App("a", "1", split={"count": "folds", "range": "some"})
    >>> items(app, {"folds": 5, "some": ""}), items(app, {"folds": 5, "some": "2:4"})
    (range(0, 5), range(2, 4))
    """
    try:
        chosen = str(parameters.get(app.split["range"]) or "")
        first, sign, end = chosen.partition(":")
        return range(int(first), int(end)) if sign else range(int(parameters[app.split["count"]]))
    except (KeyError, TypeError, ValueError):
        return range(1)


def parts_of(cell: PoolCell, app: App, walltime_s: float, max_walltime_s: float) -> list[PoolCell]:
    """Return the parts of a cell that are short enough; empty if it cannot be split.

    Parameters
    ----------
    walltime_s : float
        The request of the cell.
    max_walltime_s : float
        The longest request.
    """
    all_items = items(app, cell.cell.parameters)
    longer = walltime_s / max_walltime_s if max_walltime_s < math.inf else 0.0
    pieces = min(max(2, math.ceil(longer)), len(all_items))
    if pieces < 2:
        return []
    edges = [round(n * len(all_items) / pieces) + all_items.start for n in range(pieces + 1)]
    parts = []
    for first, end in itertools.pairwise(edges):
        share = (end - first) / len(all_items)
        parameters = {**cell.cell.parameters, app.split["range"]: f"{first}:{end}"}
        times_s = {
            min(share * s, max_walltime_s) for s in (*cell.requests.walltimes_s, walltime_s)
        }
        parts.append(
            PoolCell(
                dataclasses.replace(cell.cell, parameters=parameters),
                dataclasses.replace(cell.requests, walltimes_s=tuple(sorted(times_s))),
                share * cell.expected_s, cell.key,
            )
        )  # fmt: skip
    return parts


def joined_run(
    parts: Sequence[tuple[Run, Sequence[Phase]]], longest: int = 0
) -> tuple[Run, list[Phase]]:
    """Return the run and phases of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. A value that is unknown in one part is
    unknown in the whole. The machine and its speed are taken from the part ``longest``.
    """
    runs, joined, start_s = [run for run, _ in parts], [], 0.0
    for run, phases in parts:
        joined += [
            dataclasses.replace(p, start_s=p.start_s + start_s, end_s=p.end_s + start_s)
            for p in phases
        ]
        start_s += run.runtime_s or 0.0
    first = min(runs, key=lambda run: run.started_at)
    changes: dict[str, Any] = {
        "outcome": next((r.outcome for r in runs if r.outcome != "completed"), "completed"),
        "noisy": any(run.noisy for run in runs),
        "limit_s": None,
    }
    for name in MACHINE:
        changes[name] = getattr(runs[longest], name)
    sums = ("runtime_s", "cpu_s", "io_read_bytes", "io_write_bytes", "metronome_ticks")
    largest_of = ("peak_rss_bytes", "peak_cgroup_bytes", "peak_threads", "peak_gpu_bytes")
    for name in (*sums, *largest_of):
        values = [getattr(run, name) for run in runs]
        changes[name] = None if None in values else (sum if name in sums else max)(values)
    return dataclasses.replace(first, **changes), joined


def _copy_results(partial: Path, folders: Sequence[Path]) -> None:
    (partial / "out").mkdir(parents=True)
    with (partial / LOG_FILE).open("wb") as log:
        for number, folder in enumerate(folders, 1):
            if (folder / "out").is_dir():
                shutil.copytree(folder / "out", partial / "out" / f"part-{number:03d}")
            with contextlib.suppress(FileNotFoundError):
                log.write((folder / LOG_FILE).read_bytes())
