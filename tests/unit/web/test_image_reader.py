"""The processes that read images: their bounds, and what happens when one ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from starlette.exceptions import HTTPException

import nifti_bytes
from voxcast.errors import ImageError
from voxcast.web.reader_pool import ReaderPool
from voxcast.web.server import ImageLimits

TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.nii"
    path.write_bytes(nifti_bytes.head(tmp_path))
    return path


@pytest.fixture
def pool() -> Iterator[ReaderPool]:
    pool = ReaderPool(ImageLimits(readers=1))
    yield pool
    pool.close()


def read(pool: ReaderPool, path: Path, **task: Any) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        with path.open("rb") as file:
            return await pool.read(file, TASK | task)

    return asyncio.run(ask())


def slow_image(folder: Path) -> Path:
    """Write an image whose mask has so many runs that it takes seconds, and much memory."""
    path = folder / "slow.nii"
    noise = np.random.default_rng(0).random((340, 340, 340)) < 0.9
    path.write_bytes(nifti_bytes.of_array(noise.astype(np.uint8)))
    return path


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(pool: ReaderPool, path: Path) -> dict[str, Any] | None:
    """Return the answer, None where the reader was found to have ended."""
    try:
        return read(pool, path)
    except HTTPException:
        return None


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


def test_a_reader_that_is_killed_is_replaced(pool: ReaderPool, image: Path) -> None:
    expected = read(pool, image)
    (first,) = pool.pids()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: ended(first))
    wait_for(lambda: answers(pool, image) == expected)


def test_an_image_that_takes_too_long_is_refused(
    pool: ReaderPool, image: Path, tmp_path: Path
) -> None:
    expected, limits = read(pool, image), pool.limits
    (first,) = pool.pids()
    os.mkfifo(tmp_path / "pipe.nii")
    with (tmp_path / "pipe.nii").open("rb+", buffering=0):  # so that it never ends
        pool.limits = replace(limits, read_s=1)
        with pytest.raises(ImageError, match="takes more than 1 s"):
            read(pool, tmp_path / "pipe.nii")
    pool.limits = limits
    wait_for(lambda: ended(first))
    assert read(pool, image) == expected


def test_memory_is_bounded_and_told(pool: ReaderPool, tmp_path: Path, image: Path) -> None:
    read(pool, image)
    with pytest.raises(ImageError, match="needs more memory"):
        read(pool, slow_image(tmp_path))
    assert "row" in read(pool, image)
