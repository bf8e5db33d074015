"""The work of one process of a sweep: take up, begin, train, tell.

What a trial is about is written down before it is trained, and a lock that dies with the process
says who is at it. Whoever finds a trial that runs and that nobody holds goes on with it from its
checkpoint, to the bits it would have had. So a process may end at any moment, and nothing is lost
or counted twice.
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

from undamped._base.errors import OptionError, UndampedError, explain
from undamped._base.options import check
from undamped._base.registry import tasks
from undamped.lab.sweeps.best import write_best
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.samplers import grid_size, pruner_for, sampler_for
from undamped.lab.sweeps.space import distributions
from undamped.lab.sweeps.storage import STUDY, database_errors, held, open_storage
from undamped.lab.sweeps.trials import ERROR, MACHINE, SURPLUS, TOKEN, Trial, best_of, trials_of
from undamped.lab.tasks.task import Task
from undamped.lab.training import fit, resume
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.run import Run
from undamped.models.for_task import check_options

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

LOST_AFTER = 600.0
"""Seconds after which a trial that no machine has claimed counts as left behind."""
FAILURES = 3
"""So many failures and no success end a sweep: something is wrong with its settings."""


@dataclass(frozen=True)
class Progress:
    """How a sweep goes.

    Args:
        finished: Trials that are over.
        wanted: How many there are to be.
        best: The best one so far.
        now: What this process is doing.
    """

    finished: int
    wanted: int
    best: Trial | None
    now: str


def open_study(folder: SweepFolder, url: str | None = None) -> optuna.Study:
    """Open Optuna's study of a sweep; it is made if it is not there.

    Args:
        folder: The folder of the sweep.
        url: The database, if the trials are not in the folder's journal.
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
    tick: Callable[[Progress], None] | None = None,
) -> list[Trial]:
    """Take part in a sweep until so many trials are over; return all of them.

    Args:
        folder: The folder of the sweep.
        trials: How many there are to be, over all processes.
        url: The database, if the trials are not in the folder's journal.
        task: The task, where it is built already.
        tick: Told how it goes.

    Raises:
        KeyboardInterrupt: Somebody wants to stop; the same call goes on later.
    """
    is_grid = folder.plan.sampler == "grid"
    if is_grid and url is not None:
        raise OptionError(
            explain(
                "--sampler",
                expected="one that chooses for several machines",
                got="grid, whose points are counted in a folder",
                remedy="Leave --storage out, or take qmc.",
            )
        )
    wanted = min(trials, grid_size(folder.plan)) if is_grid else trials
    study = open_study(folder, url)
    worker = _Worker(folder, study, wanted, url, task, tick)
    with database_errors(url):
        worker.work()
        worker._tell("done")
        return trials_of(folder, study)


@dataclass
class _Worker:
    folder: SweepFolder
    study: optuna.Study
    wanted: int
    url: str | None
    task: Task | None
    tick: Callable[[Progress], None] | None

    def __post_init__(self) -> None:
        self.plan = self.folder.plan
        self.space = distributions(self.plan.space)
        self.seen: tuple[int, Trial | None] = (0, None)
        self.shares_task = not any(key.startswith("task.") for key in self.plan.space)

    def work(self) -> None:
        while True:
            with self._taken() as trial:
                if trial is not None:
                    self._train(trial)
                    self._write_best()
                    continue
            if not self._others_here():
                return
            self._tell("waiting for trials of other processes")
            time.sleep(0.5)

    # Who does what

    @contextlib.contextmanager
    def _taken(self) -> Iterator[FrozenTrial | None]:
        """Hold a trial to work at: one that was left behind, or a new one; None if none is left."""
        with contextlib.ExitStack() as locks:
            with self.folder.alone():
                trial = self._left_behind(locks) or self._new(locks)
            yield trial

    def _left_behind(self, locks: contextlib.ExitStack) -> FrozenTrial | None:
        for trial in self._trials("RUNNING"):
            if self._is_here(trial) and locks.enter_context(self._lock(trial.number, wait=False)):
                return self._complete(trial)
        return None

    def _new(self, locks: contextlib.ExitStack) -> FrozenTrial | None:
        if len(self._counted()) >= self.wanted:
            return None
        begun = self._begin()
        place = [one.number for one in self._counted()].index(begun.number)
        if place >= self.wanted:  # other machines were faster
            self._live(begun).set_user_attr(SURPLUS, True)
            self._close(begun.number, "FAIL")
            return None
        locks.enter_context(self._lock(begun.number))
        return self._complete(begun)

    def _begin(self) -> FrozenTrial:
        """Begin a trial that says from its first moment whose it is; its settings come later.

        A process may end right after this, and whoever has the folder finds the trial.
        """
        from optuna.trial import TrialState, create_trial

        token = uuid.uuid4().hex
        whose = {MACHINE: self.folder.identity, TOKEN: token}
        self.study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs=whose))
        return next(one for one in self._trials() if one.user_attrs.get(TOKEN) == token)

    def _live(self, trial: FrozenTrial) -> optuna.Trial:
        import optuna

        return optuna.trial.Trial(self.study, trial._trial_id)

    def _complete(self, trial: FrozenTrial) -> FrozenTrial:
        """Choose settings that a process did not come to choose before it ended."""
        if set(trial.params) == set(self.space):
            return trial
        self.study.sampler = sampler_for(self.plan, trial.number)
        again = self._live(trial)
        for key, distribution in self.space.items():
            _suggest(again, key, distribution)
        return self._found(trial.number)

    def _is_here(self, trial: FrozenTrial) -> bool:
        """Whether a running trial was begun from this folder, or nobody knows from where."""
        mine = trial.user_attrs.get(MACHINE) == self.folder.identity
        if mine or self.folder.trial(trial.number).exists() or self.url is None:
            return True
        begun = trial.datetime_start
        age = time.time() - begun.timestamp() if begun is not None else math.inf
        return MACHINE not in trial.user_attrs and age > LOST_AFTER

    def _others_here(self) -> bool:
        return any(self._is_here(trial) for trial in self._trials("RUNNING"))

    def _lock(self, number: int, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
        folder = self.folder.trial(number)
        folder.mkdir(parents=True, exist_ok=True)
        return held(folder / "lock", wait=wait)

    def _trials(self, *states: str) -> list[FrozenTrial]:
        found = self.study.get_trials(deepcopy=False)
        return [one for one in found if not states or one.state.name in states]

    def _counted(self) -> list[FrozenTrial]:
        return [one for one in self._trials() if SURPLUS not in one.user_attrs]

    def _found(self, number: int) -> FrozenTrial:
        return next(one for one in self._trials() if one.number == number)

    # One trial

    def _train(self, trial: FrozenTrial) -> None:
        live = self._live(trial)
        watcher = _Watcher(live, trial)
        name = f"trial {trial.number}"
        self._tell(name)
        try:
            run = self._run(trial, watcher, lambda line: self._tell(f"{name}: {line}", look=False))
        except UndampedError as error:
            live.set_user_attr(ERROR, str(error))
            self._close(trial.number, "FAIL")
            self._stop_if_hopeless(error)
            return
        if watcher.behind:
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

    def _run(self, trial: FrozenTrial, watcher: _Watcher, tell: Callable[[str], None]) -> Run:
        begun = self.folder.run(trial.number)
        if begun is not None:
            return resume(begun.path, progress=tell, watch=watcher)
        parts = self.plan.settings(trial.params)
        task_options = check(
            self.plan.task, tasks[self.plan.task], parts.get("task", {}), text=True
        )
        run = fit(
            self.plan.model,
            self.task if self.task is not None and self.shares_task else self.plan.task,
            model_options=check_options(self.plan.model, parts.get("model", {}), text=True),
            task_options=task_options,
            train=check("train", TrainOptions, parts.get("train", {}), text=True),
            seed=self.plan.seed,
            out=self.folder.trial(trial.number),
            progress=tell,
            watch=watcher,
        )
        if self.shares_task:
            self.task = run.task()  # data are read once
        return run

    def _close(self, number: int, state: str, value: float | None = None) -> None:
        from optuna.trial import TrialState

        self.study.tell(number, value, state=TrialState[state], skip_if_finished=True)

    def _stop_if_hopeless(self, error: UndampedError) -> None:
        ended = [one for one in self._counted() if one.state.is_finished()]
        if len(ended) >= FAILURES and all(one.state.name == "FAIL" for one in ended):
            raise error

    # What is seen

    def _write_best(self) -> None:
        best = best_of(trials_of(self.folder, self.study), self.folder.higher_is_better)
        if best is not None:
            with self.folder.alone():
                write_best(self.folder, best)

    def _look(self) -> tuple[int, Trial | None]:
        """Return how many trials are over, and the best."""
        over = [one for one in self._counted() if one.state.is_finished()]
        valued = [
            Trial(one.number, "finished", one.value, one.params, None, None)
            for one in over
            if one.state.name == "COMPLETE"
        ]
        return len(over), best_of(valued, self.folder.higher_is_better)

    def _tell(self, now: str, *, look: bool = True) -> None:
        if self.tick is None:
            return
        if look:
            self.seen = self._look()
        self.tick(Progress(self.seen[0], self.wanted, self.seen[1], now))


class _Watcher:
    """Tells Optuna of every validation, and remembers whether the trial is behind the others."""

    def __init__(self, live: optuna.Trial, trial: FrozenTrial) -> None:
        self.live = live
        self.told = set(trial.intermediate_values)
        self.behind = False

    def __call__(self, validation: int, metric: float) -> bool:
        """Return whether the training should end here."""
        if validation not in self.told and math.isfinite(metric):
            self.live.report(metric, validation)
            self.told.add(validation)
        self.behind = self.live.should_prune()
        return self.behind


def _suggest(trial: optuna.Trial, key: str, distribution: Any) -> None:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(key, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(
            key, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    else:
        trial.suggest_float(
            key, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
