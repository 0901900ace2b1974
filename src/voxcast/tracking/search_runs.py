"""MLflow runs of tuning: a study for each family and ensemble, with nested trials."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from voxcast.models.selection.leaderboard import GRID
from voxcast.tracking import runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.models.out_of_fold import Metrics
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.models.selection.search import Search, Trial


class SearchRuns:
    """Logs the progress that `voxcast.models.selection.learning.learn` reports.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    campaign : str
        Id of the parent run of the studies.
    app : str
        Name of the application, a tag and a parameter of every run.
    tags : mapping
        Other tags of every run.
    """

    def __init__(
        self, session: runs.Session, campaign: str, app: str, tags: Mapping[str, str]
    ) -> None:
        self.session = session
        self.campaign = campaign
        self.app = app
        self.tags = {**tags, "app": app}
        self._open = ExitStack()
        self._family = self._study = ""

    def __enter__(self) -> SearchRuns:
        return self

    def __exit__(self, *exception: object) -> None:
        # A study that is still open was interrupted; MLflow marks it as failed.
        self._open.__exit__(*exception)  # type: ignore[arg-type]

    def on_family(self, name: str) -> None:
        """Open the study of a family."""
        self._family = name
        study = runs.run(
            self.session,
            "study",
            f"{self.app} {name}",
            parent=self.campaign,
            tags={**self.tags, "family": name},
        )
        self._study = self._open.enter_context(study)

    def on_trial(self, trial: Trial) -> None:
        """Log a trial in the open study."""
        with runs.run(
            self.session,
            "trial",
            f"{self.app} {self._family} {trial.number}",
            parent=self._study,
            tags={**self.tags, "family": self._family, "state": trial.state},
            params={**trial.params, "app": self.app, "family": self._family},
            metrics=runs.prefixed("cv", trial.metrics) | {"fit_s": trial.duration_s},
        ):
            pass

    def on_search(self, search: Search) -> None:
        """Log the best trial and close the study."""
        names = {"app": self.app, "family": search.family}
        best = {**search.params, **names, "trials": len(search.trials)}
        runs.add(self._study, runs.prefixed("cv", search.metrics), best)
        self._open.close()

    def log_ensembles(self, leaderboard: Leaderboard) -> None:
        """Log a study for each ensemble, and one for the best family, named ``grid``."""
        by_name = leaderboard.metrics[leaderboard.input_level]
        ensembles = {name: m for name, m in by_name.items() if name not in leaderboard.tuned}
        self._log_ensemble(GRID, by_name[leaderboard.best_family])
        for name, metrics in ensembles.items():
            self._log_ensemble(name, metrics)

    def _log_ensemble(self, name: str, metrics: Metrics) -> None:
        tags = {**self.tags, "family": name}
        title, params = f"{self.app} {name}", {"app": self.app, "family": name, "trials": 0}
        with runs.run(self.session, "study", title, parent=self.campaign, tags=tags) as study:
            runs.add(study, runs.prefixed("cv", metrics), params)
