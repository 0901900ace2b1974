"""The noise floor that a model card states, from repeats in a training table."""

import math

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.config.served_facts import noise_floor


def test_repeats_of_one_run_tell_the_noise_floor() -> None:
    table = planted.table(200).assign(host_id="h", noisy=False)
    rng = np.random.default_rng(0)
    repeats = [table.assign(repeat=n, cell_key=table["cell_key"] + f"-{n}") for n in range(2)]
    for repeat in repeats:
        repeat["cpu_s"] *= np.exp(rng.normal(0, 0.05, len(repeat)))
    floor = noise_floor(pd.concat(repeats, ignore_index=True))
    assert floor["cpu_s"]["value"] == pytest.approx(5 * math.sqrt(2 / math.pi), rel=0.1)
    assert floor["cpu_s"]["low"] < floor["cpu_s"]["value"] < floor["cpu_s"]["high"]
    assert floor["cpu_s"]["runs"] == 800
    assert floor["peak_rss_bytes"]["value"] == pytest.approx(0, abs=1e-6)


def test_without_repeats_there_is_no_noise_floor() -> None:
    table = planted.table(4).assign(host_id="h")
    assert noise_floor(table) == {}
    twice = pd.concat([table, table.assign(noisy=True)], ignore_index=True)
    assert noise_floor(twice) == {}  # beside other work
