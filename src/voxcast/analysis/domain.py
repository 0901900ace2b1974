"""Whether real heads belong to a generated cohort: their characteristics within its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.recorded import RECORDED_IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

LOW, HIGH = 0.01, 0.99
DIGITS = 6


def domain(
    heads: pd.DataFrame,
    cohort: pd.DataFrame,
    characteristics: Sequence[str] = tuple(CHARACTERISTICS),
) -> dict[str, Any]:
    """Compare the characteristics of heads with the 1 to 99 % range of a cohort.

    Parameters
    ----------
    heads, cohort : DataFrame
        One row per volume with ``subject`` and `characteristics`.

    Returns
    -------
    dict
        ``range``: of the cohort, and of the heads, by characteristic; ``heads``: the share of the
        cohort that is not above each head, by characteristic; ``misses``: what lies outside, by
        head; ``heads_inside``: number of heads without a miss.

    Raises
    ------
    KeyError
        If a table lacks a characteristic.
    """
    ranges: dict[str, dict[str, list[float]]] = {}
    misses: dict[str, list[dict[str, Any]]] = {str(subject): [] for subject in heads["subject"]}
    shares: dict[str, dict[str, float]] = {subject: {} for subject in misses}
    for name in characteristics:
        low, high = (float(cohort[name].quantile(q)) for q in (LOW, HIGH))
        ranges[name] = {
            "cohort": [_short(low), _short(high)],
            "heads": [_short(heads[name].min()), _short(heads[name].max())],
        }
        for subject, value in zip(heads["subject"], heads[name], strict=True):
            shares[str(subject)][name] = round(float((cohort[name] <= value).mean()), 4)
            if not low <= value <= high:
                misses[str(subject)].append({"characteristic": name, "value": _short(value)})
    return {
        "volumes": len(cohort),
        "heads_inside": sum(not missed for missed in misses.values()),
        "range": ranges,
        "heads": shares,
        "misses": {subject: missed for subject, missed in misses.items() if missed},
    }


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def compare_on_record(
    history: Path, cohorts: Sequence[str], heads: Sequence[str]
) -> dict[str, Any]:
    """Compare the volumes of some recorded batches, each head once, with each recorded cohort.

    Parameters
    ----------
    history : Path
        Folder of the recorded batches.
    cohorts, heads : sequence of str
        Names of batches.

    Returns
    -------
    dict
        What `domain` returns, by cohort.

    Raises
    ------
    TableError
        If a batch is not on record.
    """
    import pandas as pd

    all_heads = pd.concat([_volumes(history / name) for name in heads])
    all_heads = all_heads.drop_duplicates("voxel_sha256")
    return {name: domain(all_heads, _volumes(history / name)) for name in cohorts}


def _volumes(batch: Path) -> pd.DataFrame:
    import pandas as pd

    path = batch / RECORDED_IMAGES
    if not path.is_file():
        raise TableError("no such file", path, f"run `voxcast measure --campaign {batch.name}`")
    return pd.read_parquet(path)
