"""Damaged images against the reader of the service.

Counts outcomes by mutation, and notes the slowest case and the greatest memory. A case is a seed,
so that ``--seed N --cases 1`` repeats it. Writes ``results/service/upload_fuzz.json``; exits with
1 if a reader ended or a fault was not foreseen. Uploads over HTTP are in
``tests/system/web/test_upload_attacks.py``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from pebble import ProcessExpired
from tqdm import tqdm

from timing import machine
from voxcast.files import write_json
from voxcast.web.reader_pool import ReaderPool
from voxcast.web.server import ImageLimits

OUT = Path("results/service/upload_fuzz.json")
TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16}
FAULTS = ("ended", "unforeseen")
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


def peak_resident_bytes(pid: int) -> int:
    """Return the greatest memory that a process ever had; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/status").read_text().split()
    except OSError:
        return 0
    return int(fields[fields.index("VmHWM:") + 1]) * 1024 if "VmHWM:" in fields else 0


def against_reader(first: int, cases: int) -> dict[str, Any]:
    """Ask a reader about damaged files."""
    images, pool = sound_images(), ReaderPool(ImageLimits(readers=1))
    outcomes: dict[str, Counter[str]] = {}
    times_s: dict[int, float] = {}
    faults: list[int] = []
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
                    answer = {"ended": True}
            times_s[seed] = time.perf_counter() - start
            peaks = [peak_resident_bytes(pid) for pid in pool.pids()]
            idle_bytes = idle_bytes or max(peaks)  # after the first image, which is sound
            peak_bytes = max(peak_bytes, *peaks)
            outcome = next((name for name in FAULTS if name in answer), "read")
            outcome = "refused" if "problem" in answer else outcome
            outcomes.setdefault(mutation, Counter())[outcome] += 1
            if outcome in FAULTS:
                faults.append(seed)
    finally:
        pool.close()
    slowest = max(times_s, key=times_s.__getitem__)
    return {
        "cases": cases,
        "outcomes": dict(sorted(sum(outcomes.values(), Counter[str]()).items())),
        "by_mutation": {name: dict(counts) for name, counts in sorted(outcomes.items())},
        "slowest_s": round(times_s[slowest], 3),
        "slowest_seed": slowest,
        "seeds_of_faults": faults[:20],
        "peak_above_idle_bytes": peak_bytes - idle_bytes,
    }


def main() -> int:
    """Read the cases, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    figures = {"machine": machine(), "first_seed": args.seed}
    figures["reader"] = against_reader(args.seed, args.cases)
    write_json(args.out, figures)
    print(json.dumps(figures, indent=2))
    return int(bool(figures["reader"]["seeds_of_faults"]))


if __name__ == "__main__":
    sys.exit(main())
