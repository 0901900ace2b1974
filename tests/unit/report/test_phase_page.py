"""The page of a trace."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from html_page import Page
from voxcast.phases.events import EVENT_DTYPES, EventTable, Kind, read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import phases_of
from voxcast.report.phase_page import overview_for_page, phase_page

SAMPLE = Path(__file__).parents[2] / "samples" / "kmeans_mpi_trace"


def page_of(events: EventTable) -> str:
    trace = logical_trace(events)
    return phase_page(overview_for_page(trace, phases_of(trace)))


def ring(processes: int, steps: int, kinds: int = 9) -> EventTable:
    """Steps of computation of several orders, a message to the next process, and a collective."""
    generator = np.random.default_rng(1)
    per_process = 3 * steps
    n = processes * per_process
    process = np.repeat(np.arange(processes), per_process)
    kind = np.tile([Kind.SEND, Kind.RECEIVE, Kind.COLLECTIVE], processes * steps)
    order = np.tile(np.repeat(np.arange(steps) % kinds, 3), processes)
    computation = np.round(10.0 ** (order / 2) * generator.uniform(90, 110, n))
    duration = generator.integers(50, 5000, n)
    by_process = (computation + duration).reshape(processes, per_process).cumsum(axis=1)
    end_ns = by_process.ravel().astype(np.int64)
    peer = np.where(kind == Kind.SEND, (process + 1) % processes, (process - 1) % processes)
    columns = {
        "process": process, "start_ns": end_ns - duration, "end_ns": end_ns, "kind": kind,
        "operation": kind, "peer": np.where(kind == Kind.COLLECTIVE, -1, peer),
        "tag": np.zeros(n), "group": np.zeros(n), "size_bytes": np.full(n, 1000),
        "computation": computation,
    }  # fmt: skip
    return EventTable(
        {name: column.astype(EVENT_DTYPES[name]) for name, column in columns.items()},
        tuple(f"rank {rank}" for rank in range(processes)),
        ("MPI_Send", "MPI_Recv", "MPI_Allreduce", "write"),
        (tuple(range(processes)),), "elapsed_ns", np.zeros(processes, np.int64),
        end_ns.reshape(processes, per_process)[:, -1], "<planted> & ring",
    )  # fmt: skip


def assert_self_contained(html: str) -> Page:
    content = Page(html)
    assert not content.all("script") + content.all("link") + content.all("iframe")
    for _, attrs in content.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/"))
    assert not re.search(r"@import|url\((?!#)", html)
    hosts = set(re.findall(r"https?://[^\s\"'<>]+", html))
    assert all(host.startswith("http://www.w3.org/") for host in hosts)  # names, not addresses
    pictures = [attrs for attrs in content.all("svg") if attrs.get("role") == "img"]
    assert pictures
    assert all(attrs.get("aria-label") for attrs in pictures)
    return content


def test_the_page_of_a_recorded_run_shows_phases_processes_and_collectives() -> None:
    content = assert_self_contained(page_of(read_trace(SAMPLE)))
    for text in ("MPI_Allreduce 1-10 kB", "rank 3", "29", "No messages between two processes"):
        assert text in content.text
    [lanes, *_] = [a["aria-label"] or "" for a in content.all("svg") if a.get("role") == "img"]
    assert re.search(r"The run, 7\.37 s\. rank 0: A \d+ %, B \d+ %", lanes, re.I)
    scrolls = [attrs for attrs in content.all("div") if attrs.get("class") == "scroll"]
    assert scrolls
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolls)


def test_each_colour_has_a_letter_and_both_themes_define_it() -> None:
    html = page_of(ring(4, 60))
    content = assert_self_contained(html)
    used = set(re.findall(r"fill: var\(--([\w-]+)\)", html))
    assert {f"series-{n}" for n in range(6)} <= used
    dark = html[html.index("prefers-color-scheme: dark") :]
    assert all(f"--{colour}:" in dark for colour in used)
    assert all(re.search(rf"\b{mark} ", content.text) for mark in "ABCDEF")
    assert "60.0\N{NO-BREAK SPACE}kB · 60" in content.text  # of each pair


def test_a_trace_of_many_events_makes_a_page_below_3_mb() -> None:
    events = ring(64, 1100)
    assert len(events) >= 2 * 10**5
    html = page_of(events)
    assert len(html.encode()) < 3_000_000
    assert_self_contained(html)


def test_text_of_a_trace_is_escaped_and_what_it_lacks_is_listed() -> None:
    events = replace(ring(2, 5), missing=("rank 2: <no file>",), processes=("<b>0", "<b>1"))
    html = page_of(events)
    content = assert_self_contained(html)
    assert "rank 2: <no file>" in content.text
    assert "<b>0" in content.text
    assert "<b>0" not in html
