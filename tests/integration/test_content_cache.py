import os
import subprocess
import sys
import time

import numpy as np
import pytest

from voxcast.content_cache import (
    ContentCache,
    cache_of_environment,
    entries_of,
)
from voxcast.errors import RunError

# Looks up 40 entries of 80 kB in an order of its own, and checks each.
USER = """
import random, sys
from pathlib import Path
import numpy as np
from voxcast.content_cache import ContentCache
cache = ContentCache(Path(sys.argv[1]), int(sys.argv[2]))
for n in random.Random(sys.argv[3]).sample(range(40), 40):
    arrays = cache.arrays("full", "1", {"n": n}, lambda: {"x": np.full(10_000, n)})
    assert arrays["x"].shape == (10_000,) and (arrays["x"] == n).all()
"""


def _arrays(n: int) -> dict[str, np.ndarray]:
    return {"numbers": np.arange(n, dtype=float), "names": np.array(["a", "é"])}


def test_what_is_stored_comes_back_and_each_part_of_the_key_counts(tmp_path):
    cache = ContentCache(tmp_path / "cache")
    cache.put("load", "1", {"sha256": "ab", "parcels": 20}, _arrays(5))
    again = ContentCache(tmp_path / "cache").get("load", "1", {"parcels": 20, "sha256": "ab"})
    assert again is not None
    assert again["numbers"].tolist() == [0, 1, 2, 3, 4]
    assert again["names"].tolist() == ["a", "é"]
    assert cache.get("load", "2", {"sha256": "ab", "parcels": 20}) is None
    assert cache.get("reduce", "1", {"sha256": "ab", "parcels": 20}) is None
    assert cache.get("load", "1", {"sha256": "ab", "parcels": 21}) is None


@pytest.mark.parametrize("place", [0.1, 0.5, 0.97, None])
def test_a_damaged_entry_is_computed_anew(tmp_path, place):
    cache = ContentCache(tmp_path)
    cache.put("load", "1", {}, {"numbers": np.arange(1000.0)})
    path = cache.path("load", "1", {})
    content = bytearray(path.read_bytes())
    if place is None:
        content = content[: len(content) // 2]
    else:
        content[int(place * len(content))] ^= 0xFF
    path.write_bytes(content)
    computed: list[int] = []

    def compute() -> dict[str, np.ndarray]:
        computed.append(1)
        return {"n": np.arange(3)}

    arrays = cache.arrays("load", "1", {}, compute)
    assert computed
    assert arrays["n"].tolist() == [0, 1, 2]
    assert cache.events() == {"load": {"damaged": 1}}
    assert cache.get("load", "1", {}) is not None


def test_objects_are_neither_stored_nor_read(tmp_path):
    cache = ContentCache(tmp_path)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cache.put("load", "1", {}, {"x": np.array([{}], dtype=object)})
    path = cache.path("load", "1", {})
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=np.array([{}], dtype=object))
    assert cache.get("load", "1", {}) is None


def test_what_was_not_used_for_longest_is_evicted(tmp_path):
    cache = ContentCache(tmp_path, max_bytes=10**6)
    for n in range(10):
        cache.put("load", "1", {"n": n}, {"x": np.zeros(12_000)})  # 96 kB each
        os.utime(cache.path("load", "1", {"n": n}), (time.time() - 1000 + n,) * 2)
    assert cache.get("load", "1", {"n": 0}) is not None  # the oldest is used
    cache.put("load", "1", {"n": 10}, {"x": np.zeros(12_000)})
    left = [n for n in range(11) if cache.path("load", "1", {"n": n}).exists()]
    assert left == [0, *range(3, 11)]
    assert sum(size for _, size, _ in entries_of(tmp_path)) <= 0.9 * 10**6


def test_many_processes_write_and_evict_at_once(tmp_path):
    bound = 2_000_000  # of 3.2 MB that are written
    users = [
        subprocess.Popen([sys.executable, "-c", USER, str(tmp_path), str(bound), str(seed)])
        for seed in range(6)
    ]
    assert [user.wait() for user in users] == [0] * 6
    size_bytes = sum(size for _, size, _ in entries_of(tmp_path))
    assert size_bytes <= bound * (1 + 6 * 0.01) + 81_000
    assert not list(tmp_path.rglob(".partial-*"))


def test_a_folder_that_cannot_be_a_cache_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="VOXCAST_CACHE"):
        ContentCache(tmp_path / "file" / "cache")
    monkeypatch.setenv("VOXCAST_CACHE", str(tmp_path / "good"))
    monkeypatch.setenv("VOXCAST_CACHE_SIZE", "much")
    with pytest.raises(RunError, match="VOXCAST_CACHE_SIZE"):
        cache_of_environment()
    monkeypatch.setenv("VOXCAST_CACHE_SIZE", "1MB")
    cache = cache_of_environment()
    assert cache is not None
    assert cache.max_bytes == 10**6
    monkeypatch.setenv("VOXCAST_CACHE", "")
    assert cache_of_environment() is None
