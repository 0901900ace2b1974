"""A target that is text: what the message points to."""

import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.features.any_table import choose_columns
from voxcast.features.csv_table import alike

TABLE = pd.DataFrame(
    {
        "JobID": [1, 2], "Elapsed": ["02:21:22", "1-00:10:51"], "ElapsedRaw": [8482, 87051],
        "User": ["ann", "bob"], "runtime": ["long", "short"], "run_time_s": [1.0, 2.0],
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Elapsed", "Elapsed: is text: times such as 02:21:22 are not read; write them as numbers "
                    "of seconds, or take ElapsedRaw, which has numbers"),
        ("User", "User: is text, such as 'ann'; the target must be a column of numbers"),
        ("runtime", "runtime: is text, such as 'long'; the target must be a column of numbers, "
                    "or take run_time_s, which has numbers"),
    ],
)  # fmt: skip
def test_a_column_of_numbers_with_a_like_name_is_offered(target: str, message: str) -> None:
    with pytest.raises(TableError) as caught:
        choose_columns(TABLE, target)
    assert str(caught.value) == message


def test_names_that_have_little_in_common_are_not_alike() -> None:
    assert alike("runtime", ["cpus", "MaxRSS", "t", "RunTime (s)"]) == ["RunTime (s)"]
