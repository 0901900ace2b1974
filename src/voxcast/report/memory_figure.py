"""Memory of a run over time, with its phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.segments import segmented_runs
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.report.canvas import INK, SERIES, inline_svg, panel
from voxcast.report.figures import Drawing
from voxcast.runs.series import phases_of, read_record, traces_of
from voxcast.runs.table import frame_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

MIN_NUMBER_SHARE = 0.02  # of the time of a run: shorter stretches have no number in them


@dataclass(frozen=True, eq=False)
class RunMemory:
    """Memory of a run.

    Attributes
    ----------
    title : str
        Application and allocation.
    samples : DataFrame
        Columns ``t_s`` and ``rss_bytes``.
    phases : DataFrame
        Columns ``phase``, ``start_s`` and ``end_s``.
    is_logged : bool
        Whether the application logged them; else they were read from the samples.
    """

    title: str
    samples: pd.DataFrame
    phases: pd.DataFrame
    is_logged: bool


def run_memory(folder: Path) -> RunMemory | None:
    """Read the memory of a recorded run; None if it has fewer than two samples.

    Raises
    ------
    TableError
        If the record is missing or broken.
    """
    runs = frame_of([vars(read_record(folder).run)])
    traces, phases = traces_of([folder]), phases_of([folder])
    if len(traces) < 2:
        return None
    is_logged = len(phases) > 0
    if not is_logged and runs["outcome"].iloc[0] == "completed":
        phases = segmented_runs(runs, traces).phases
    run = runs.iloc[0]
    title = f"{run['app']}, {counted(int(run['cpus']), 'CPU')}"
    return RunMemory(title, traces, phases, is_logged)


def memory_drawing(run: RunMemory, name: str = "") -> Drawing:
    """Draw memory over time, with each phase as a numbered band.

    Parameters
    ----------
    run : RunMemory
        The run.
    name : str
        Makes the ids of the figure unique on the page.
    """
    t_s, rss_bytes = (run.samples[c].to_numpy(float) for c in ("t_s", "rss_bytes"))
    names = list(dict.fromkeys(run.phases["phase"]))
    end_s = max(float(t_s.max()), float(run.phases["end_s"].max()) if names else 0.0)
    factor, unit = (1e9, "GB") if rss_bytes.max() >= 1e9 else (1e6, "MB")
    with panel(4.2, 2.9) as (figure, axes):
        for phase in run.phases.to_dict("records"):
            number = names.index(phase["phase"])
            begin, stop = float(phase["start_s"]), float(phase["end_s"])
            colour = SERIES[number % len(SERIES)]
            axes.axvspan(begin, stop, color=colour, alpha=0.28, linewidth=0)
            if stop - begin >= MIN_NUMBER_SHARE * end_s:
                axes.text(
                    (begin + stop) / 2, 1.02, str(number + 1), ha="center", fontsize=8.5,
                    transform=axes.get_xaxis_transform(),
                )  # fmt: skip
        axes.plot(t_s, rss_bytes / factor, color=INK, linewidth=1.3)
        axes.set_xlim(0, end_s)
        axes.set_ylim(0, 1.08 * float(rss_bytes.max()) / factor)
        axes.set(xlabel="time since the start (s)", ylabel=f"memory ({unit})")
        axes.set_title(run.title, pad=16)
        texts = _texts(run, names, t_s, rss_bytes)
        alt = f"Memory of {run.title}: {', '.join(texts) or 'no phase'}"
        svg = inline_svg(figure, f"memory {run.title} {name}".strip(), alt)
    origin = "logged by the application" if run.is_logged else "read from the memory"
    caption = f"Phases {origin}: {'; '.join(texts)}." if texts else "No phase."
    return Drawing(svg, caption)


def _texts(run: RunMemory, names: list[str], t_s: np.ndarray, rss_bytes: np.ndarray) -> list[str]:
    """Write number, name, time and peak memory of each phase."""
    texts = []
    for number, name in enumerate(names, 1):
        stretches = run.phases[run.phases["phase"] == name]
        begin, stop = (stretches[c].to_numpy(float) for c in ("start_s", "end_s"))
        inside = ((t_s >= begin[:, None]) & (t_s <= stop[:, None])).any(axis=0)
        peak_bytes = rss_bytes[inside].max(initial=0.0)
        peak = f", {format_bytes(peak_bytes)}" if peak_bytes else ""
        texts.append(f"{number} {name} {format_seconds(float((stop - begin).sum()))}{peak}")
    return texts
