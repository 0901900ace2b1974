"""Damaged images against the reader of the service, and against a service over HTTP.

Counts outcomes by mutation, and notes the slowest case and the greatest memory. A case is a seed,
so that ``--seed N --cases 1`` repeats it. Writes ``results/service/upload_fuzz.json``; exits with
1 if a reader ended, a fault was not foreseen, or the service answered with 5xx.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pebble import ProcessExpired
from tqdm import tqdm

from live_service import live_service, planted_project
from timing import machine
from upload_mutations import case, sound_images
from voxcast.files import write_json
from voxcast.web.reader_pool import ReaderPool
from voxcast.web.settings import ImageLimits

OUT = Path("results/service/upload_fuzz.json")
TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16}
FAULTS = ("ended", "unforeseen", "5xx", "no answer")


@dataclass
class Tally:
    """Outcomes of cases, and the extremes among them."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    seeds_of_faults: list[int] = field(default_factory=list)

    def add(self, mutation: str, outcome: str, duration_s: float, seed: int) -> None:
        """Count a case."""
        self.outcomes.setdefault(mutation, Counter())[outcome] += 1
        self.slowest = max(self.slowest, (duration_s, seed))
        if outcome in FAULTS:
            self.seeds_of_faults.append(seed)

    def to_json(self) -> dict[str, Any]:
        """Return counts, slowest case and faults."""
        total: Counter[str] = sum(self.outcomes.values(), Counter())
        return {
            "cases": total.total(),
            "outcomes": dict(sorted(total.items())),
            "by_mutation": {
                mutation: dict(sorted(counts.items()))
                for mutation, counts in sorted(self.outcomes.items())
            },
            "reasons": dict(self.reasons.most_common(20)),
            "slowest_s": round(self.slowest[0], 3),
            "slowest_seed": self.slowest[1],
            "seeds_of_faults": self.seeds_of_faults[:20],
        }


def peak_resident_bytes(pid: int) -> int:
    """Return the greatest memory that a process ever had; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/status").read_text().split()
    except OSError:
        return 0
    return int(fields[fields.index("VmHWM:") + 1]) * 1024 if "VmHWM:" in fields else 0


def against_reader(first: int, cases: int) -> dict[str, Any]:
    """Ask a reader about damaged files."""
    tally, images = Tally(), sound_images()
    pool = ReaderPool(ImageLimits(readers=1))
    idle_bytes = peak_bytes = 0
    try:
        for seed in tqdm(range(first, first + cases), "reader", disable=None):
            mutation, content = case(seed, images)
            with tempfile.TemporaryFile() as file:
                file.write(content)
                file.flush()
                start = time.perf_counter()
                try:
                    answer = pool.submit(file, TASK).result()
                except (TimeoutError, ProcessExpired):
                    answer = {}
            duration_s = time.perf_counter() - start
            peaks = [peak_resident_bytes(pid) for pid in pool.pids()]
            idle_bytes = idle_bytes or max(peaks)  # after the first image, which is sound
            peak_bytes = max(peak_bytes, *peaks)
            tally.add(mutation, _outcome(answer), duration_s, seed)
            if "problem" in answer:
                tally.reasons[_reason(str(answer["problem"]))] += 1
    finally:
        pool.close()
    return {**tally.to_json(), "peak_above_idle_bytes": peak_bytes - idle_bytes}


def _outcome(answer: dict[str, Any]) -> str:
    if not answer:
        return "ended"
    if "unforeseen" in answer:
        return "unforeseen"
    return "refused" if "problem" in answer else "read"


def _reason(problem: str) -> str:
    """Return a reason without its numbers, so that equal ones are counted together."""
    words = problem.partition(";")[0].partition("(")[0].split()
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in words)[:60]


def against_service(first: int, cases: int, project: Path, log: Path) -> dict[str, Any]:
    """Upload damaged files to a service."""
    tally, images = Tally(), sound_images()
    with live_service(project, log) as service:
        host = service.url.removeprefix("http://")
        for number in (0, 1):  # what is read once only, is
            _post(host, images[number])
        idle_bytes = service.rest()
        for seed in tqdm(range(first, first + cases), "service", disable=None):
            mutation, content = case(seed, images)
            start = time.perf_counter()
            status, problem = _post(host, content)
            tally.add(mutation, _class_of(status), time.perf_counter() - start, seed)
            if problem:
                tally.reasons[_reason(problem)] += 1
        alive = _post(host, images[1])[0] == 200
        peak_bytes = service.peak_bytes - idle_bytes
    return {
        **tally.to_json(),
        "peak_above_idle_bytes": peak_bytes,
        "alive_at_the_end": alive,
        "tracebacks": log.read_text().count("Traceback"),
    }


def _class_of(status: int) -> str:
    if status == 0:
        return "no answer"
    return "5xx" if status >= 500 else str(status)


def _post(host: str, content: bytes) -> tuple[int, str]:
    """Upload a file to ``/images``; return the status and the reason of a refusal."""
    connection = http.client.HTTPConnection(host, timeout=300)
    try:
        connection.request("POST", "/images?app=segment", content)
        answer = connection.getresponse()
        text = answer.read()
        detail = json.loads(text).get("detail", "") if answer.status != 200 else ""
        return answer.status, str(detail)
    except (OSError, http.client.HTTPException, ValueError):
        return 0, ""
    finally:
        connection.close()


def main() -> int:
    """Run both, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12_000, help="against the reader")
    parser.add_argument("--http-cases", type=int, default=1_000, help="against the service")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--project", type=Path, help="with a champion; default: a planted one")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine(), "first_seed": args.seed}
    figures["reader"] = against_reader(args.seed, args.cases)
    with tempfile.TemporaryDirectory() as folder:
        project = args.project or planted_project(Path(folder))
        log = Path(folder) / "service.log"
        figures["service"] = against_service(args.seed, args.http_cases, project, log)
    write_json(args.out, figures)
    print(json.dumps(figures, indent=2))
    parts = (figures["reader"], figures["service"])
    faults = any(part["seeds_of_faults"] for part in parts)
    return int(faults or not figures["service"]["alive_at_the_end"])


if __name__ == "__main__":
    sys.exit(main())
