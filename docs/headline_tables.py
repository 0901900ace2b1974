"""Tables of errors and bounds by protocol, from ``published/headline/headline.csv``.

``python docs/headline_tables.py`` (``make headline`` does it) prints them from ``results/``.
"""

from __future__ import annotations

import csv
import math
import sys
from functools import cache

from table_text import NONE, PROJECT, markdown, percent

FILE = PROJECT / "published/headline/headline.csv"
IMAGE_APPS = ("ants_segment", "ants_register", "tile_segment")
APPS = (*IMAGE_APPS, "dnn_train")
TITLES = {"runtime_s": "wall time", "cpu_s": "CPU time", "peak_rss_bytes": "memory"}
VOXCAST, LEVELLED = "voxcast", "HARP + log + speed"
NEW, READ = ("new0", "new2"), ("timed0", "read0")
CONTENDERS = (
    VOXCAST, "law", "ridge", "GP", LEVELLED, "HARP, full scale", "HARP", "voxels", "median",
)  # fmt: skip
MEANINGS = {
    "law": "law in voxels and mask", "GP": "Gaussian process",
    "ridge": "ridge", LEVELLED: "HARP on logarithms, same speed",
    "HARP, full scale": "HARP, full scale only", "HARP": "HARP as published",
    "voxels": "line in voxels", "median": "constant",
}  # fmt: skip


@cache
def _rows() -> dict[tuple[str, ...], dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        keys = ("app", "target", "protocol", "contender")
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


def row_of(app: str, target: str, protocol: str, contender: str) -> dict[str, str]:
    """Return the line of the result file with these keys."""
    return _rows()[app, target, protocol, contender]


def _number(app: str, target: str, protocol: str, name: str, contender: str = VOXCAST) -> float:
    return float(row_of(app, target, protocol, contender)[name] or "nan")


def _cell(app: str, target: str, protocol: str, contender: str, *, interval: bool = True) -> str:
    row = _rows().get((app, target, protocol, contender))
    if row is None:
        return NONE
    error = percent(float(row["mape"]))
    low, high = (float(row[end]) for end in ("low", "high"))
    return f"{error} ({low:.1f} to {high:.1f})" if interval else error


def headline() -> str:
    """Return the table of the README: wall time of a new subject on a new day."""
    rows = []
    for app in APPS:
        held = [_number(app, "runtime_s", protocol, "coverage") for protocol in NEW]
        others = [
            "; ".join(_cell(app, "runtime_s", p, name, interval=False) for p in NEW)
            for name in ("law", LEVELLED)
        ]
        rows.append([
            f"`{app}`",
            f"**{_cell(app, 'runtime_s', 'new0', VOXCAST)}**",
            "; ".join(_cell(app, "runtime_s", p, VOXCAST, interval=False) for p in READ),
            f"**{_cell(app, 'runtime_s', 'new2', VOXCAST)}**",
            *(text if NONE not in text else "no image" for text in others),
            percent(_number(app, "runtime_s", "known", "floor")),
            "; ".join(percent(100 * share) for share in held),
        ])  # fmt: skip
    head = [
        "application", "new day", "runs with a reading: without it; with it",
        "after two local runs", "law in voxels", "HARP, on logarithms",
        "repeats alone, speed known", "runs within the 95 % bound",
    ]  # fmt: skip
    return markdown(head, rows)


def contenders() -> str:
    """Return errors of wall time of all contenders by protocol, and the floors."""
    protocols = {"new0": "new day", "new2": "2 local runs", "new8": "8 local runs",
                 "known": "sitting known"}  # fmt: skip
    rows = []
    for app in APPS:
        for name in CONTENDERS:
            cells = [_cell(app, "runtime_s", protocol, name) for protocol in protocols]
            if set(cells) != {NONE}:
                rows.append([f"`{app}`: {MEANINGS.get(name, name)}", *cells])
        floors = [_number(app, "runtime_s", protocol, "floor") for protocol in protocols]
        texts = [NONE if math.isnan(floor) else percent(floor) for floor in floors]
        rows.append([f"`{app}`: *repeats alone*", *texts])
    return markdown(["application and model", *protocols.values()], rows)


def bounds() -> str:
    """Return how often the bounds of voxcast held, and how wide they are."""
    rows = []
    for app in APPS:
        for target, title in TITLES.items():
            cells = []
            for protocol in ("new0", "new2", "new8", "known"):
                runs, subjects, width = (
                    _number(app, target, protocol, name)
                    for name in ("coverage", "subjects_covered", "width")
                )
                cells.append(f"{percent(100 * runs)}; {percent(100 * subjects)}; {width:.2f}")
            rows.append([f"`{app}`: {title}", *cells])
    head = ["application", "new day", "2 local runs", "8 local runs", "sitting known"]
    return markdown(head, rows)


def readings() -> str:
    """Return what a reading of the kernels is worth, on the runs before which there is one."""
    rows = []
    protocols = {"new day": ("timed0", "read0", "read2"),
                 "second machine": ("machine0", "machine_read0", "machine_read2")}  # fmt: skip
    for app in APPS:
        for place, (without, alone, with_runs) in protocols.items():
            held = [
                f"{percent(100 * _number(app, 'runtime_s', p, 'coverage'))}; "
                f"{_number(app, 'runtime_s', p, 'width'):.2f}"
                for p in (without, alone)
            ]
            errors = [_cell(app, "runtime_s", p, VOXCAST) for p in (without, alone, with_runs)]
            law = _cell(app, "runtime_s", alone, "law", interval=False)
            rows.append([f"`{app}`, {place}", *errors, law, *held])
    head = [
        "application and place", "without", "with a reading", "and two local runs",
        "law with a reading", "bound, without", "bound, with a reading",
    ]  # fmt: skip
    return markdown(head, rows)


def second_machine() -> str:
    """Return errors and bounds on the machine whose runs are never learned from."""
    rows = []
    for app in APPS:
        for protocol in ("machine0", "machine2", "machine8"):
            cells = []
            for target in TITLES:
                runs, above = (
                    _number(app, target, protocol, name) for name in ("runs", "above_bound")
                )
                cells += [
                    _cell(app, target, protocol, VOXCAST),
                    f"{runs - above:.3g} of {runs:.0f}",
                ]
            law = _cell(app, "runtime_s", protocol, "law", interval=False)
            rows.append([f"`{app}`", protocol.removeprefix("machine"), *cells, law])
    titles = [text for title in TITLES.values() for text in (title, "runs within its bound")]
    return markdown(["application", "local runs", *titles, "wall time by the law"], rows)


TABLES = (headline, contenders, bounds, readings, second_machine)


def main() -> int:
    """Print the tables of the results of this machine, with the names in their file."""
    global FILE
    FILE = PROJECT / "results/headline/headline.csv"
    print(headline())
    print(contenders())
    names = ", ".join(f"{MEANINGS.get(name, name)}: {name}" for name in CONTENDERS)
    print(
        f"in {FILE.relative_to(PROJECT)}: new0 is a new day, new2 and new8 are "
        f"after local runs; {names}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
