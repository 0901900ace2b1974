"""Waiting times of requests."""

import pytest

from voxcast.allocation.site import Waiting


def test_a_request_never_waits_a_negative_time() -> None:
    # 204 processors of Aupy et al., IPDPS 2019: a negative constant is possible.
    assert Waiting(1.16, -1290.38).of([100.0, 3600.0]).tolist() == pytest.approx([0.0, 2885.62])
