"""Which runs of an application can be compared: runs of one version and one memory method.

Each application has its own, so that one of them does not discard runs of another. Runs measured
in the project decide; recorded batches only where there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Comparability:
    """The version and the memory method that runs must have.

    Attributes
    ----------
    versions : dict
        The most recently run version by application and device. A run that states no version, as
        most imports, is taken for it.
    methods : dict
        The most frequent method of measuring memory by application; of equals the first.
    """

    versions: dict[tuple[str, str], str]
    methods: dict[str, str]

    @classmethod
    def of(cls, profiles: pd.DataFrame) -> Comparability:
        """Return the requirements on the runs of ``profiles``.

        Parameters
        ----------
        profiles : DataFrame
            Runs of any outcome; a column ``batch``, if there is one, is empty for runs measured
            in the project.
        """
        dated = profiles.assign(here=profiles.get("batch", "") == "")
        dated = dated.sort_values(["here", "started_at"], kind="stable")
        stated = dated[dated["app_version"] != ""]
        measured = dated[(dated["outcome"] == "completed") & (dated["memory_method"] != "")]
        return cls(
            {
                (str(app), str(device)): str(versions.iloc[-1])
                for (app, device), versions in stated.groupby(["app", "device"])["app_version"]
            },
            {
                str(app): str(_decisive(runs)["memory_method"].mode().iloc[0])
                for app, runs in measured.groupby("app")
            },
        )

    def objection(self, run: Mapping[str, Any]) -> str | None:
        """Return why a run cannot be compared with the rest; None if it can."""
        if not self.has_version(run["app"], run["device"], run["app_version"]):
            return "another version of the application"
        if run["memory_method"] != self.methods.get(run["app"], run["memory_method"]):
            return f"memory by another method: {run['memory_method'] or 'not stated'}"
        return None

    def has_version(self, app: str, device: str, version: str) -> bool:
        """Tell whether a version of an application is the one to compare."""
        return version in ("", self.versions.get((app, device), version))


def _decisive(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["here"]] if runs["here"].any() else runs
