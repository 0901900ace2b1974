"""One search of parameters by any number of workers, whose result does not depend on their timing.

All trials are enqueued before the first worker starts. The parameters of trial N are drawn at
random with a seed made of the study's name and N, and the first are the family's defaults. They
look at no other trial, as a sampler that learns from the trials that happen to have ended would
make the result one of timing. So the chosen parameters have the smallest error and, of equal ones,
the lowest N, independently of workers and timing.

The study is an Optuna study in a journal file, locked by a symbolic link as NFS needs it, or in a
database. A worker that died shows by its file of life; its trials are failed and enqueued again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.files import sha256_of
from voxcast.jobs.claim import file_system_time, kept_alive, silent_s
from voxcast.models.families.family import family
from voxcast.models.out_of_fold import error_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import optuna

    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation

JOURNAL, WORKERS = "study.log", "workers"
INDEX, WORKER, PROBLEM = "index", "worker", "problem"  # attributes of a trial
BEAT_S, EXPIRES_S = 20.0, 180.0
MAX_ATTEMPTS = 3  # of a trial whose worker was lost, or that fails
POLL_S = 2.0


@dataclass(frozen=True)
class FamilyResult:
    """Where the search of a family stands.

    Attributes
    ----------
    params : dict or None
        Of the best trial so far; None before the first.
    completed, given_up, trials : int
        Of the trials, how many are on record, and how many failed too often.
    lost : int
        Attempts whose worker died, or that failed.
    """

    params: Params | None
    objective: float
    completed: int
    given_up: int
    trials: int
    lost: int

    @property
    def finished(self) -> bool:
        """Whether no trial is left to be made."""
        return self.completed + self.given_up >= self.trials


class SharedSearch:
    """The studies of a folder, one for each name.

    Parameters
    ----------
    folder : Path
        On a file system that all workers share.
    trials, seed : int
        Of each study.
    url : str, optional
        Of a database; by default a journal file in ``folder``.
    token : str, optional
        Sets studies apart from others of the same name in the database.
    expires_s : float
        A worker that shows no life for this long is lost.
    """

    def __init__(
        self, folder: Path, trials: int, seed: int, url: str = "", token: str = "",
        expires_s: float = EXPIRES_S,
    ) -> None:  # fmt: skip
        import optuna

        from voxcast.studies.search_database import search_database
        from voxcast.studies.search_journal import SearchJournal

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder, self.trials, self.seed, self.expires_s = folder, trials, seed, expires_s
        (folder / WORKERS).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._suffix = f" {token}" if url and token else ""
        if url:
            self._storage: Any = search_database(url)
        else:
            self._storage = optuna.storages.JournalStorage(SearchJournal(folder / JOURNAL))

    def add(self, name: str, family_name: str) -> None:
        """Enqueue the trials of a study that are missing."""
        self._enqueue_missing(self._study(name), name, family_name)

    def result(self, name: str, family_name: str) -> FamilyResult:
        """Return where a study stands; a pure function of the set of its trials."""
        import optuna

        complete: dict[int, optuna.trial.FrozenTrial] = {}
        trials = self._study(name).get_trials(deepcopy=False)
        for trial in sorted(trials, key=lambda t: t.number):
            if trial.state.name == "COMPLETE":
                complete.setdefault(trial.user_attrs[INDEX], trial)
        best = min(complete.values(), key=lambda t: (t.value, t.user_attrs[INDEX]), default=None)
        params = None
        if best is not None:
            params = family(family_name).suggest(optuna.trial.FixedTrial(best.params))  # type: ignore[arg-type]
        attempts = self._attempts(trials)
        given_up = [n for n in range(self.trials) if self._is_given_up(attempts.get(n, []))]
        return FamilyResult(
            params, math.nan if best is None or best.value is None else best.value,
            len(complete), len(given_up), self.trials,
            sum(trial.state.name == "FAIL" for trial in trials),
        )  # fmt: skip

    def work(
        self,
        searches: Mapping[str, tuple[str, Validation]],
        worker: str,
        on_trial: Callable[[str, int, float], None] = lambda name, index, value: None,
    ) -> int:
        """Make trials until none is left; return how many.

        Parameters
        ----------
        searches : mapping of str to (str, Validation)
            Family and runs of each study, by name.
        worker : str
            Name of this worker, different for each.
        on_trial : callable
            Called with study, number and error of each trial.
        """
        life, count = self.folder / WORKERS / worker, 0
        life.touch()
        try:
            with kept_alive(life, min(BEAT_S, self.expires_s / 4)):
                for name, trial in self._claims(searches, worker):
                    family_name, validation = searches[name]
                    value = self._make(trial, family_name, validation)
                    count += value is not None
                    if value is not None:
                        on_trial(name, trial.user_attrs[INDEX], value)
        finally:
            life.unlink(missing_ok=True)
        return count

    def _study(self, name: str) -> optuna.Study:
        import optuna

        name += self._suffix
        return optuna.create_study(study_name=name, storage=self._storage, load_if_exists=True)

    def _claims(
        self, searches: Mapping[str, tuple[str, Validation]], worker: str
    ) -> Iterator[tuple[str, optuna.Trial]]:
        """Yield trials that this worker has claimed; wait for others', which may be lost."""
        import optuna

        studies = {name: self._study(name) for name in searches}
        open_studies = dict(studies)
        while open_studies:
            is_idle = True
            for name, study in list(open_studies.items()):
                self._fail_lost(study)
                self._enqueue_missing(study, name, searches[name][0])
                waiting = study.get_trials(
                    deepcopy=False, states=(optuna.trial.TrialState.WAITING,)
                )
                for frozen in waiting:
                    if self._take(frozen._trial_id):
                        trial = optuna.Trial(study, frozen._trial_id)
                        trial.set_user_attr(WORKER, worker)
                        is_idle = False
                        yield name, trial
                if not waiting and self.result(name, searches[name][0]).finished:
                    del open_studies[name]
            if is_idle and open_studies:
                time.sleep(min(POLL_S, self.expires_s / 4))

    def _take(self, trial_id: int) -> bool:
        """Claim a trial that waits; only one worker succeeds."""
        import optuna

        try:
            running = optuna.trial.TrialState.RUNNING
            return bool(self._storage.set_trial_state_values(trial_id, state=running))
        except (RuntimeError, optuna.exceptions.UpdateFinishedTrialError):  # it has ended
            return False

    def _make(self, trial: optuna.Trial, family_name: str, validation: Validation) -> float | None:
        """Make a trial and record its error; None if it failed, or was taken for lost."""
        import optuna

        params = family(family_name).suggest(trial)
        state, values, problem = optuna.trial.TrialState.COMPLETE, [math.nan], ""
        try:
            out_of_fold = validation.out_of_fold(family_name, params, "volume")
            logs = out_of_fold
            metrics = error_metrics(validation.table, logs, validation.targets)
            values = [metrics["objective"]]
        except (ValueError, ArithmeticError) as error:  # these parameters do not fit these runs
            state, problem = optuna.trial.TrialState.FAIL, repr(error)
        try:
            if problem:
                trial.set_user_attr(PROBLEM, problem)
                self._storage.set_trial_state_values(trial._trial_id, state=state)
                return None
            self._storage.set_trial_state_values(trial._trial_id, state=state, values=values)
        except (RuntimeError, optuna.exceptions.UpdateFinishedTrialError):
            return None  # this worker was taken for dead; another makes the trial again
        return values[0]

    def _fail_lost(self, study: optuna.Study) -> None:
        """Fail trials of workers that show no life."""
        import optuna

        now_s = file_system_time(self.folder / WORKERS)
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            name = trial.user_attrs.get(WORKER, "")
            age_s = silent_s(self.folder / WORKERS / name) if name else math.inf
            if not name and trial.datetime_start is not None:  # it died between two writes
                age_s = now_s - trial.datetime_start.timestamp()
            if age_s > self.expires_s:
                try:
                    fail = optuna.trial.TrialState.FAIL
                    self._storage.set_trial_state_values(trial._trial_id, state=fail)
                except (RuntimeError, optuna.exceptions.UpdateFinishedTrialError):
                    continue  # another worker did so, or it has ended

    def _enqueue_missing(self, study: optuna.Study, name: str, family_name: str) -> None:
        """Enqueue each trial that is neither on record, nor waits or runs, nor is given up.

        Two workers may do so at a time: the same trial is then made twice, with the same result.
        """
        attempts = self._attempts(study.get_trials(deepcopy=False))
        for index in range(self.trials):
            states = attempts.get(index, [])
            if all(state == "FAIL" for state in states) and not self._is_given_up(states):
                params = _drawn(name, family_name, self.seed, index)
                study.enqueue_trial(params, user_attrs={INDEX: index})

    @staticmethod
    def _attempts(trials: list[optuna.trial.FrozenTrial]) -> dict[int, list[str]]:
        """Return the states of the attempts of each trial."""
        states: dict[int, list[str]] = {}
        for trial in trials:
            states.setdefault(trial.user_attrs[INDEX], []).append(trial.state.name)
        return states

    @staticmethod
    def _is_given_up(states: list[str]) -> bool:
        return states.count("FAIL") >= MAX_ATTEMPTS and set(states) == {"FAIL"}


def _drawn(name: str, family_name: str, seed: int, index: int) -> dict[str, Any]:
    """Return the parameters of a trial as Optuna records them."""
    import optuna

    model_family = family(family_name)
    digits = sha256_of({"study": name, "seed": seed, "index": index})[:8]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=int(digits, 16)))
    if index == 0:
        study.enqueue_trial(model_family.defaults)
    trial = study.ask()
    model_family.suggest(trial)
    return trial.params
