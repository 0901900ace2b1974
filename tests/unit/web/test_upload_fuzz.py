"""Images damaged at random, in this process's reader: refused or read, and always foreseen.

``python benchmarks/upload_fuzz.py`` runs many more, see docs/service.md.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upload_fuzz import NIFTI1, NIFTI2, case, sound_images
from voxcast.web.reader_pool import ReaderPool
from voxcast.web.server import ImageLimits

TASK = {"max_voxels": 2**28, "coarse_points": 64, "network_points": 16}
IMAGES = sound_images()
FIELDS = sorted({*NIFTI1.values(), *NIFTI2.values()})
# Each has failed once: spacing of 0, a range that underflows, an infinite offset, an affine in a
# plane, a sum that overflows, an extension of gigabytes, an offset of minus infinity.
ONCE_UNFORESEEN = (
    75, 246, 493, 499, 676, 2620, 3174, 4708, 7023, 7775, 9538, 11449, 2529761,
)  # fmt: skip


@pytest.fixture(scope="module")
def reader() -> Iterator[ReaderPool]:
    pool = ReaderPool(ImageLimits(readers=1))
    yield pool
    pool.close()


def answer(reader: ReaderPool, content: bytes) -> dict:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        told: dict = reader.submit(file, TASK).result()
        return told


def check(reader: ReaderPool, content: bytes) -> None:
    told = answer(reader, content)
    assert "unforeseen" not in told, told
    assert ("problem" in told) != ("row" in told)


@pytest.mark.parametrize("seed", ONCE_UNFORESEEN)
def test_what_was_once_not_foreseen_is_refused(reader: ReaderPool, seed: int) -> None:
    check(reader, case(seed, IMAGES)[1])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(10**6, 10**9))
def test_mutations_are_read_or_refused(reader: ReaderPool, seed: int) -> None:
    check(reader, case(seed, IMAGES)[1])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    image=st.sampled_from(IMAGES),
    changes=st.lists(
        st.tuples(st.sampled_from(FIELDS), st.binary(min_size=8, max_size=8)),
        min_size=1,
        max_size=4,
    ),
)
def test_any_value_in_any_field_is_read_or_refused(
    reader: ReaderPool, image: bytes, changes: list
) -> None:
    damaged = io.BytesIO(image)
    for (offset, kind), value in changes:
        damaged.seek(offset)
        damaged.write(value[: {"B": 1, "h": 2, "i": 4, "f": 4}.get(kind[1], 8)])
    check(reader, damaged.getvalue())
