"""One process of a sweep: it selects a trial, trains it, and reports the result.

The settings of a trial are stored before it is trained, and the process that trains it has a lock,
which ends with the process. A running trial without a lock is resumed from its checkpoint by any
process, with the same bits as without the interruption. A process may therefore end at any moment,
and no trial is lost or counted twice.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError, UndampedError
from undamped._base.options import check
from undamped._base.registry import tasks
from undamped.lab.files import file_lock
from undamped.lab.sweeps.folder import STUDY, SweepFolder, database_errors, open_storage
from undamped.lab.sweeps.plan import distributions, grid_size, pruner_for, sampler_for
from undamped.lab.sweeps.trials import (
    ERROR,
    MACHINE,
    SURPLUS,
    TOKEN,
    Trial,
    best_of,
    trials_of,
    write_best,
)
from undamped.lab.tasks.task import Task
from undamped.lab.training import fit, resume
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.run import Run
from undamped.models.for_task import check_options

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

LOST_AFTER = 600.0
"""Seconds after which a trial that belongs to no machine is abandoned."""
FAILURES = 3
"""The number of failures without a success that ends a sweep: its settings must be wrong."""


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep.

    Args:
        finished: Number of trials that have ended.
        total: Requested number of trials.
        best: The best trial so far.
        status: What this process is doing.
    """

    finished: int
    total: int
    best: Trial | None
    status: str


def open_study(folder: SweepFolder, url: str | None = None) -> optuna.Study:
    """Open the study of a sweep in Optuna; it is created if necessary.

    Args:
        folder: The folder of the sweep.
        url: The database, if the trials are not in the journal of the folder.
    """
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    with database_errors(url):
        return optuna.create_study(
            study_name=folder.path.name if url else STUDY,
            storage=open_storage(folder.path, url),
            direction="maximize" if folder.higher_is_better else "minimize",
            pruner=pruner_for(folder.plan),
            load_if_exists=True,
        )


def sweep(
    folder: SweepFolder,
    trials: int,
    *,
    url: str | None = None,
    task: Task | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Trial]:
    """Train trials of a sweep until there are enough; return all of them.

    Args:
        folder: The folder of the sweep.
        trials: The number of trials over all processes.
        url: The database, if the trials are not in the journal of the folder.
        task: The task, if it has been built.
        progress: Called with the progress.

    Raises:
        KeyboardInterrupt: The sweep was interrupted; the same call resumes it.
    """
    is_grid = folder.plan.sampler == "grid"
    if is_grid and url is not None:
        raise OptionError(
            "A grid is for one machine, since its points are counted in a folder. Leave out "
            "--storage, or use --sampler qmc."
        )
    total = min(trials, grid_size(folder.plan)) if is_grid else trials
    study = open_study(folder, url)
    worker = _Worker(folder, study, total, url, task, progress)
    with database_errors(url):
        worker.work()
        worker.report("done")
        return trials_of(folder, study)


@dataclass
class _Worker:
    folder: SweepFolder
    study: optuna.Study
    total: int
    url: str | None
    task: Task | None
    progress: Callable[[Progress], None] | None

    def __post_init__(self) -> None:
        self.plan = self.folder.plan
        self.space = distributions(self.plan.space)
        self.results: tuple[int, Trial | None] = (0, None)
        self.shares_task = not any(key.startswith("task.") for key in self.plan.space)

    def work(self) -> None:
        while True:
            with self._next_trial() as trial:
                if trial is not None:
                    self._train(trial)
                    self._write_best()
                    continue
            if not any(self._is_local(trial) for trial in self._trials("RUNNING")):
                return
            self.report("waiting for trials of other processes")
            time.sleep(0.5)

    # Selecting a trial

    @contextlib.contextmanager
    def _next_trial(self) -> Iterator[FrozenTrial | None]:
        """Lock a trial: an abandoned one, or a new one; None if there are enough."""
        with contextlib.ExitStack() as locks:
            with self.folder.lock():
                trial = self._abandoned(locks) or self._new(locks)
            yield trial

    def _abandoned(self, locks: contextlib.ExitStack) -> FrozenTrial | None:
        for trial in self._trials("RUNNING"):
            if self._is_local(trial) and locks.enter_context(self._lock(trial.number, wait=False)):
                return self._complete(trial)
        return None

    def _new(self, locks: contextlib.ExitStack) -> FrozenTrial | None:
        if len(self._counted()) >= self.total:
            return None
        trial = self._start()
        rank = [counted.number for counted in self._counted()].index(trial.number)
        if rank >= self.total:  # other machines were faster
            self._live(trial).set_user_attr(SURPLUS, True)
            self._close(trial.number, "FAIL")
            return None
        locks.enter_context(self._lock(trial.number))
        return self._complete(trial)

    def _start(self) -> FrozenTrial:
        """Start a trial with the identity of the folder; its settings are sampled afterwards.

        If the process ends right after this, other processes of the folder find the trial.
        """
        from optuna.trial import TrialState, create_trial

        token = uuid.uuid4().hex
        attributes = {MACHINE: self.folder.identity, TOKEN: token}
        self.study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs=attributes))
        return next(trial for trial in self._trials() if trial.user_attrs.get(TOKEN) == token)

    def _live(self, trial: FrozenTrial) -> optuna.Trial:
        import optuna

        return optuna.trial.Trial(self.study, trial._trial_id)

    def _complete(self, trial: FrozenTrial) -> FrozenTrial:
        """Sample the settings that an interrupted process has not sampled."""
        if set(trial.params) == set(self.space):
            return trial
        self.study.sampler = sampler_for(self.plan, trial.number)
        live = self._live(trial)
        for key, distribution in self.space.items():
            _suggest(live, key, distribution)
        return next(stored for stored in self._trials() if stored.number == trial.number)

    def _is_local(self, trial: FrozenTrial) -> bool:
        """Whether a running trial was started in this folder, or its origin is unknown."""
        same = trial.user_attrs.get(MACHINE) == self.folder.identity
        if same or self.folder.trial(trial.number).exists() or self.url is None:
            return True
        start = trial.datetime_start
        age = time.time() - start.timestamp() if start is not None else math.inf
        return MACHINE not in trial.user_attrs and age > LOST_AFTER

    def _lock(self, number: int, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
        folder = self.folder.trial(number)
        folder.mkdir(parents=True, exist_ok=True)
        return file_lock(folder / "lock", wait=wait)

    def _trials(self, *states: str) -> list[FrozenTrial]:
        trials = self.study.get_trials(deepcopy=False)
        return [trial for trial in trials if not states or trial.state.name in states]

    def _counted(self) -> list[FrozenTrial]:
        return [trial for trial in self._trials() if SURPLUS not in trial.user_attrs]

    # Training a trial

    def _train(self, trial: FrozenTrial) -> None:
        live = self._live(trial)
        watcher = _Watcher(live, trial)
        name = f"trial {trial.number}"
        self.report(name)
        try:
            run = self._run(
                trial, watcher, lambda line: self.report(f"{name}: {line}", refresh=False)
            )
        except UndampedError as error:
            live.set_user_attr(ERROR, str(error))
            self._close(trial.number, "FAIL")
            ended = [counted for counted in self._counted() if counted.state.is_finished()]
            if len(ended) >= FAILURES and all(t.state.name == "FAIL" for t in ended):
                raise
            return
        if watcher.pruned:
            self._close(trial.number, "PRUNED")
        elif run.settings["status"] != "finished":
            raise KeyboardInterrupt
        else:
            assert run.result is not None
            value = run.result["valid"][self.folder.metric]
            if math.isfinite(value):
                self._close(trial.number, "COMPLETE", value)
            else:
                live.set_user_attr(ERROR, f"the best validation was {value}")
                self._close(trial.number, "FAIL")

    def _run(self, trial: FrozenTrial, watcher: _Watcher, progress: Callable[[str], None]) -> Run:
        run = self.folder.run(trial.number)
        if run is not None:
            return resume(run.path, progress=progress, watch=watcher)
        sections = self.plan.settings(trial.params)
        task_options = check(
            self.plan.task, tasks[self.plan.task], sections.get("task", {}), text=True
        )
        run = fit(
            self.plan.model,
            self.task if self.task is not None and self.shares_task else self.plan.task,
            model_options=check_options(self.plan.model, sections.get("model", {}), text=True),
            task_options=task_options,
            train=check("train", TrainOptions, sections.get("train", {}), text=True),
            seed=self.plan.seed,
            out=self.folder.trial(trial.number),
            progress=progress,
            watch=watcher,
        )
        if self.shares_task:
            self.task = run.task()  # data are read once
        return run

    def _close(self, number: int, state: str, value: float | None = None) -> None:
        from optuna.trial import TrialState

        self.study.tell(number, value, state=TrialState[state], skip_if_finished=True)

    # Results

    def _write_best(self) -> None:
        best = best_of(trials_of(self.folder, self.study), self.folder.higher_is_better)
        if best is not None:
            with self.folder.lock():
                write_best(self.folder, best)

    def report(self, status: str, *, refresh: bool = True) -> None:
        """Call `progress`, with the current results if `refresh` is true."""
        if self.progress is None:
            return
        if refresh:
            ended = [trial for trial in self._counted() if trial.state.is_finished()]
            valued = [
                Trial(trial.number, "finished", trial.value, trial.params, None, None)
                for trial in ended
                if trial.state.name == "COMPLETE"
            ]
            self.results = len(ended), best_of(valued, self.folder.higher_is_better)
        self.progress(Progress(self.results[0], self.total, self.results[1], status))


class _Watcher:
    """Reports every validation to Optuna, and stores whether the trial should be stopped early."""

    def __init__(self, live: optuna.Trial, trial: FrozenTrial) -> None:
        self.live = live
        self.reported = set(trial.intermediate_values)
        self.pruned = False

    def __call__(self, validation: int, metric: float) -> bool:
        """Return whether the training should stop."""
        if validation not in self.reported and math.isfinite(metric):
            self.live.report(metric, validation)
            self.reported.add(validation)
        self.pruned = self.live.should_prune()
        return self.pruned


def _suggest(trial: optuna.Trial, key: str, distribution: Any) -> None:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(key, distribution.choices)
        return
    integer = isinstance(distribution, IntDistribution)
    suggest: Any = trial.suggest_int if integer else trial.suggest_float
    low, high = distribution.low, distribution.high
    suggest(key, low, high, step=distribution.step, log=distribution.log)
