"""Damaged images against the reader of the service, and against a service over HTTP.

Counts outcomes by mutation, and notes the slowest case and the greatest memory. A case is a seed,
so that ``--seed N --cases 1`` repeats it. Writes ``results/service/upload_fuzz.json``; exits with
1 if a reader ended, a fault was not foreseen, or the service answered with 5xx.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from pebble import ProcessExpired
from tqdm import tqdm

from live_service import live_service, planted_project
from timing import machine
from voxcast.files import write_json
from voxcast.web.reader_pool import ReaderPool
from voxcast.web.settings import ImageLimits

OUT = Path("results/service/upload_fuzz.json")
TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16}
FAULTS = ("ended", "unforeseen", "5xx", "no answer")
# Offset and type of fields of the header (nifti1.h, nifti2.h).
NIFTI1 = {
    "sizeof_hdr": (0, "<i"), **{f"dim[{n}]": (40 + 2 * n, "<h") for n in range(8)},
    "datatype": (70, "<h"), "bitpix": (72, "<h"),
    **{f"pixdim[{n}]": (76 + 4 * n, "<f") for n in range(8)},
    "vox_offset": (108, "<f"), "scl_slope": (112, "<f"), "scl_inter": (116, "<f"),
    "xyzt_units": (123, "<B"), "glmin": (144, "<i"), "qform_code": (252, "<h"),
    "sform_code": (254, "<h"), **{f"quatern[{n}]": (256 + 4 * n, "<f") for n in range(6)},
    **{f"srow[{n}]": (280 + 4 * n, "<f") for n in range(12)}, "magic": (344, "<i"),
    "extension": (348, "<i"), "extension size": (352, "<i"), "extension code": (356, "<i"),
}  # fmt: skip
NIFTI2 = {
    "sizeof_hdr": (0, "<i"), "magic": (4, "<q"), "datatype": (12, "<h"), "bitpix": (14, "<h"),
    **{f"dim[{n}]": (16 + 8 * n, "<q") for n in range(8)},
    **{f"pixdim[{n}]": (104 + 8 * n, "<d") for n in range(8)},
    "vox_offset": (168, "<q"), "scl_slope": (176, "<d"), "scl_inter": (184, "<d"),
    "qform_code": (344, "<i"), "sform_code": (348, "<i"),
    **{f"srow[{n}]": (400 + 8 * n, "<d") for n in range(12)}, "xyzt_units": (500, "<i"),
    "intent_code": (504, "<i"), "extension": (540, "<i"), "extension size": (544, "<i"),
}  # fmt: skip
WHOLE_NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 64, 127, 128, 255, 256, 348, 352, 540, 544, 512,
                 1024, 32767, -32768, 163842, 2**31 - 1, -(2**31), 2**62, -(2**63))  # fmt: skip
REAL_NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-10, 1e10, 3e38, -3e38, float("nan"), float("inf"),
                float("-inf"), 352.5, 347.0, 351.0, 368.0, 1e6, 6.7e7)  # fmt: skip
MAX_BYTES = 2**20  # of a case


def sound_images() -> list[bytes]:
    """Return small heads of several types, NIfTI-1 and NIfTI-2, one with an extension."""
    rng = np.random.default_rng(5)
    grid = np.indices((18, 20, 16)).astype(np.float64)
    centre = np.array([8.5, 9.5, 7.5])[:, None, None, None]
    ball = 900.0 * (np.sqrt(((grid - centre) ** 2).sum(axis=0)) < 6) + rng.normal(
        0, 9, (18, 20, 16)
    )
    affine = np.diag([2.0, 2.0, 2.5, 1.0])
    images: list[Any] = [
        nibabel.Nifti1Image(np.clip(ball, 0, None).astype(dtype), affine)
        for dtype in (np.uint8, np.int16, np.float32, np.float64)
    ]
    images.append(nibabel.Nifti2Image(ball.astype(np.float32), affine))
    images.append(nibabel.Nifti1Image(ball.astype(np.float32), affine))
    images[-1].header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"a comment"))
    images.append(nibabel.Nifti1Image(ball.astype(">i2"), affine))
    return [image.to_bytes() for image in images]


def flipped_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change some bytes, of the header more often than of the voxels."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 2, 8, 64))):
        end = len(damaged) if rng.random() < 0.3 else min(len(damaged), 560)
        damaged[rng.randrange(end)] = rng.randrange(256)
    return bytes(damaged)


def changed_fields(content: bytes, rng: random.Random) -> bytes:
    """Set some fields of the header to values at the ends of their types, or to nonsense."""
    damaged = bytearray(content)
    is_second = content[:4] == struct.pack("<i", 540)
    fields = NIFTI2 if is_second else NIFTI1
    for name in rng.sample(sorted(fields), rng.choice((1, 1, 2, 4))):
        offset, kind = fields[name]
        struct.pack_into(kind, damaged, offset, _value(kind, rng))
    return bytes(damaged)


def _value(kind: str, rng: random.Random) -> int | float:
    if kind[1] in "fd":
        return rng.choice(REAL_NUMBERS)
    bits = 8 * struct.calcsize(kind)
    low, high = (
        (0, 2**bits - 1) if kind[1].isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    value = rng.choice(WHOLE_NUMBERS) if rng.random() < 0.8 else rng.randrange(low, high + 1)
    bounded: int = min(max(value, low), high)
    return bounded


def cut(content: bytes, rng: random.Random) -> bytes:
    """Take the first bytes only."""
    return content[: rng.randrange(len(content))]


def joined(content: bytes, rng: random.Random) -> bytes:
    """Put other bytes behind, or repeat what there is."""
    return content + rng.choice((content, bytes(rng.randrange(1, 4096)), rng.randbytes(99)))


def random_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return bytes without a form, some behind a sound start."""
    start = content[: rng.choice((0, 4, 348, 352, 540))]
    return start + rng.randbytes(rng.randrange(5000))


def gzip_damaged(content: bytes, rng: random.Random) -> bytes:
    """Compress, and damage the compressed bytes."""
    packed = gzip.compress(content, 1)
    return rng.choice((flipped_bytes, cut, joined))(packed, rng)


def gzip_members(content: bytes, rng: random.Random) -> bytes:
    """Compress in several members, some of which are lost, doubled, empty or not compressed."""
    edges = sorted({0, len(content), *(rng.randrange(len(content)) for _ in range(3))})
    parts = [content[a:b] for a, b in itertools.pairwise(edges)]
    members = [gzip.compress(part, 1) for part in parts]
    position = rng.randrange(len(members))
    damage: Callable[[], Any] = rng.choice((
        lambda: members.pop(position),
        lambda: members.insert(position, members[position]),
        lambda: members.insert(position, gzip.compress(b"")),
        lambda: members.__setitem__(position, parts[position]),
        lambda: members.append(gzip.compress(bytes(2**22))),
        lambda: None,
    ))  # fmt: skip
    damage()
    return b"".join(members)


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    mutation.__name__: mutation
    for mutation in (
        flipped_bytes, changed_fields, cut, joined, random_bytes, gzip_damaged, gzip_members,
    )
}  # fmt: skip


def case(seed: int, images: list[bytes]) -> tuple[str, bytes]:
    """Return the name of a mutation and the file that it makes, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    names = sorted(MUTATIONS)
    # Most of what a reader can be led to do, the header's fields lead it to.
    name = rng.choices(names, [3 if name == "changed_fields" else 1 for name in names])[0]
    content = MUTATIONS[name](rng.choice(images), rng)
    if not content.startswith(b"\x1f\x8b") and rng.random() < 0.4:
        content = gzip.compress(content, 1)
    return name, content[:MAX_BYTES]


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
