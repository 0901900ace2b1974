"""Numbers that tell nothing hide no repeats; honest inputs are never taken for such."""

import numpy as np
import pandas as pd
import pytest

from public_tables import KINDS, tables_of
from voxcast.features.any_table import choose_columns, learnable
from voxcast.features.screening import idle_columns, screened


def repeats(seed: int = 0, inputs: int = 30, rows: int = 600) -> pd.DataFrame:
    """Return runs of few inputs, each with an effect of its own, under a queue."""
    rng = np.random.default_rng(seed)
    size, effect = np.exp(rng.uniform(0, 5, inputs)), rng.lognormal(0, 0.5, inputs)
    number = rng.integers(0, inputs, rows)
    return pd.DataFrame(
        {
            "size": size[number], "priority": rng.integers(1, 10**6, rows),
            "queue_wait": rng.exponential(60, rows),
            "seconds": 3 * size[number] * effect[number] * rng.lognormal(0, 0.04, rows),
        }
    )  # fmt: skip


def idle(table: pd.DataFrame, group: str | None = None) -> tuple[str, ...]:
    return idle_columns(table, choose_columns(table, "seconds", group))


def test_numbers_that_tell_nothing_are_idle_where_rows_repeat_without_them() -> None:
    for seed in range(5):
        table = repeats(seed)
        assert idle(table) == ("priority", "queue_wait")
        assert idle(table.assign(queue_wait=table["queue_wait"].round())) == (
            "priority",
            "queue_wait",
        )
    assert idle(table.assign(cluster=np.arange(600) // 20), "cluster") == ()
    assert idle(table.drop(columns=["priority", "queue_wait"])) == ()
    assert idle(table.assign(run=[f"run {n}" for n in range(600)])) == (
        "priority",
        "queue_wait",
        "run",
    )


def test_a_number_that_tells_something_keeps_its_rows_apart() -> None:
    table = repeats()
    for effect in (
        table["queue_wait"].rank(pct=True) * 0.1,
        np.sin(table["queue_wait"].rank(pct=True) * 12) * 0.1,
    ):
        assert idle(table.assign(seconds=table["seconds"] * np.exp(effect))) == ()


def test_each_input_once_is_never_taken_for_repeats() -> None:
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.uniform(0, 5, (2, 200)))
    cpus = rng.choice([1, 2, 4], 200)
    seconds = x * y / cpus * rng.lognormal(0, 0.3, 200)
    table = pd.DataFrame({"x": x, "y": y, "cpus": cpus, "seconds": seconds})
    assert idle(table) == ()
    assert idle(table[["x", "y", "seconds"]]) == ()
    # All that is left would be nothing.
    assert idle(table[["x", "seconds"]].assign(x=rng.uniform(size=200))) == ()


@pytest.mark.parametrize("kind", ["additive", "multiplicative", "counter", "noisy", "tiny"])
def test_public_tables_are_grouped_as_before(kind: str) -> None:
    for seed in range(3):
        table = tables_of(KINDS[kind], seed).train
        columns = choose_columns(table, KINDS[kind].target, KINDS[kind].group)
        usable, _ = learnable(table, columns)
        assert screened(table[usable], columns).columns.idle == ()
