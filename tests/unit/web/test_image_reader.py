"""The processes that read images: their bounds, and what happens when one ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from starlette.exceptions import HTTPException

import nifti_bytes
from voxcast.errors import ImageError
from voxcast.web.images.reader_pool import ReaderPool
from voxcast.web.settings import ImageLimits

TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16, "voxels": True,
        "slices": False}  # fmt: skip


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


def test_a_reader_that_is_killed_is_replaced_and_the_image_is_read_again(
    pool: ReaderPool, image: Path
) -> None:
    expected = read(pool, image)
    (first,) = pool.pids()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(first) or psutil.Process(first).status() == "zombie")
    assert read(pool, image) == expected
    (second,) = pool.pids()
    assert second != first


def test_a_reader_that_hangs_is_ended_at_its_limit(image: Path) -> None:
    pool = ReaderPool(ImageLimits(readers=1, read_s=2))
    try:
        expected = read(pool, image)
        (first,) = pool.pids()
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(ImageError, match="takes more than 2 s"):
            read(pool, image)
        assert not psutil.pid_exists(first)
        assert read(pool, image) == expected
    finally:
        pool.close()


def test_an_image_that_takes_too_much_cpu_time_is_refused(image: Path, tmp_path: Path) -> None:
    pool = ReaderPool(ImageLimits(readers=1, read_s=1, memory_bytes=2_000_000_000))
    try:
        with pytest.raises(ImageError, match="takes more than 1 s"):
            read(pool, slow_image(tmp_path))
        for _ in range(3):  # the limit is of an image, not of a process
            assert "row" in read(pool, image)
    finally:
        pool.close()


def test_memory_is_bounded_and_told(pool: ReaderPool, tmp_path: Path, image: Path) -> None:
    read(pool, image)
    with pytest.raises(ImageError, match="needs more memory"):
        read(pool, slow_image(tmp_path))
    assert "row" in read(pool, image)


def test_an_image_that_needs_more_than_its_share_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.nii"
    voxels = np.random.default_rng(0).integers(0, 900, (200, 200, 200)).astype(np.float32)
    path.write_bytes(nifti_bytes.of_array(voxels))
    pool = ReaderPool(ImageLimits(readers=8, memory_bytes=240_000_000))

    async def read_both() -> list[dict[str, Any]]:
        with path.open("rb") as file:
            return await asyncio.gather(*(pool.read(file, dict(TASK)) for _ in range(2)))

    try:
        shares: list[dict[str, Any]] = []
        ask = pool._ask

        def noted(descriptor: int, task: dict[str, Any]) -> dict[str, Any]:
            shares.append(task)
            return ask(descriptor, task)

        monkeypatch.setattr(pool, "_ask", noted)
        first, second = asyncio.run(read_both())
        assert first["row"] == second["row"]
        assert {task["memory_bytes"] for task in shares} == {30_000_000, 240_000_000}
    finally:
        pool.close()


def test_readers_that_are_killed_again_and_again_are_no_fault_of_the_image(
    image: Path, tmp_path: Path
) -> None:
    pool = ReaderPool(ImageLimits(readers=1))
    try:
        read(pool, image)
        path = slow_image(tmp_path)
        ended = threading.Event()

        def kill() -> None:
            while not ended.is_set():
                for pid in pool.pids():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.2)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            with pytest.raises(HTTPException) as refused:
                read(pool, path)
        finally:
            ended.set()
            killer.join()
        assert refused.value.status_code == 503
        assert "ended from outside" in refused.value.detail
        assert "row" in read(pool, image)
    finally:
        pool.close()


def test_readers_know_no_secrets_and_no_names(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    pool = ReaderPool(ImageLimits(readers=1))
    try:
        read(pool, image)
        (pid,) = pool.pids()
        assert b"a secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert str(image).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        links = Path(f"/proc/{pid}/fd").iterdir()
        assert not any(str(image) in str(link.readlink()) for link in links)  # closed
    finally:
        pool.close()


def test_questions_that_are_given_up_leave_nothing_open(pool: ReaderPool, image: Path) -> None:
    read(pool, image)
    before = len(list(Path("/proc/self/fd").iterdir()))

    async def give_up() -> None:
        with image.open("rb") as file:
            tasks = [asyncio.create_task(pool.read(file, dict(TASK))) for _ in range(8)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(give_up())
    assert "row" in read(pool, image)  # after those that had begun
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert len(pool.pids()) == 1


def test_the_second_question_about_an_image_is_answered_from_the_cache(
    pool: ReaderPool, image: Path, tmp_path: Path
) -> None:
    first = read(pool, image, slices=True)
    copy = tmp_path / "copy.nii"
    copy.write_bytes(image.read_bytes())
    assert read(pool, copy, slices=True) == first
    counts = "".join(path.read_text() for path in pool.folder.glob("cache/counts/*"))
    events = ["miss volume_summary", "miss slices", "hit volume_summary", "hit slices"]
    assert counts.splitlines() == events


def test_what_a_reader_holds_in_excess_replaces_it(image: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("voxcast.web.images.reader_process.GROWTH_BYTES", -1)
    pool = ReaderPool(ImageLimits(readers=1))
    try:
        (first,) = pool.pids()
        read(pool, image)
        assert pool.pids() != [first]
        assert not psutil.pid_exists(first)
    finally:
        pool.close()
