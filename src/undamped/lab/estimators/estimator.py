"""What the three estimators share: options, training, answers in batches, pickles and streams."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from undamped._base.errors import DataError, DataWarning, OptionError, explain
from undamped._base.options import Range, convert
from undamped.lab.data.recordings.preparation import Kind, Missing, Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import find_suspicions, in_words, strange_series
from undamped.lab.estimators.frozen import freeze, thaw
from undamped.lab.estimators.inputs import Collection
from undamped.lab.estimators.options import EstimatorOptions
from undamped.lab.estimators.selection import EstimatorTask
from undamped.lab.estimators.settings import starting_from
from undamped.lab.training import Run, fit
from undamped.lab.training.fit import AUTO
from undamped.lab.training.prediction import answers_to
from undamped.lab.training.streaming import SampleStream
from undamped.models.task_model import TaskModel

_Share = Annotated[float, Range(low=0, high=1, open_high=True)]
_BUDGETS = ("epochs", "steps", "seconds", "minutes")


class SequenceEstimator(EstimatorOptions, BaseEstimator):
    """What a classifier, a regressor and a forecaster of sequences have in common."""

    kind: ClassVar[Kind]

    @property
    def task_class(self) -> type[EstimatorTask]:
        """What is learnt."""
        return EstimatorTask

    # Set by fit.
    model_: TaskModel
    preparation_: Preparation
    history_: list[dict[str, float]]
    tried_: list[dict[str, Any]]
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray  # names of the channels, where the series had such
    run_path_: Path | None

    # Training

    def _learn(self, series_set: SeriesSet, **task_options: Any) -> None:
        """Split, prepare and train; what is kept afterwards is small and plain."""
        share = convert(
            _Share, self.validation_fraction, f"{type(self).__name__}.validation_fraction"
        )
        if share and len(series_set) < 2 and self.kind != "forecast":
            raise DataError(
                explain(
                    "X",
                    expected="at least two series, one to learn from and one to validate",
                    got="1 sample",
                    remedy="Give more series, or validation_fraction=0.",
                )
            )
        for sentence in find_suspicions(series_set) if self.kind != "forecast" else ():
            warnings.warn(sentence, DataWarning, stacklevel=3)
        missing = convert(Missing | Literal["auto"], self.missing, f"{type(self).__name__}.missing")
        seed = self._seed()
        task = self.task_class(
            series_set,
            kind=self.kind,
            missing=missing,
            fractions=(1 - share, share, 0.0),
            split_seed=seed,
            seed=seed,
            **task_options,
        )
        model_options, train = self._choices(task)
        with self._folder() as folder:
            run = fit(
                self.model,
                task,
                model_options=model_options,
                train=train,
                seed=seed,
                out=folder,
                progress=bool(self.verbose),
            )
            self._keep(run, task)

    def _seed(self) -> int:
        try:
            numbers = check_random_state(self.random_state)
        except ValueError:
            raise OptionError(
                explain(
                    f"{type(self).__name__}.random_state",
                    expected="none, a whole number from 0 to 4294967295 or a RandomState of NumPy",
                    got=repr(self.random_state),
                    remedy="Give a value of that kind.",
                )
            ) from None
        return int(numbers.randint(np.iinfo(np.int32).max))

    def _choices(self, task: EstimatorTask) -> tuple[dict[str, Any], dict[str, Any]]:
        """Put what was said over what suits the size of the data."""
        if self.model == AUTO:
            return self._said_to_model(), {"accelerator": self.device, **self._said_to_training()}
        suggested = starting_from(
            self.model,
            length=int(np.median(task.series_set.lengths)) - (task.horizon or 0),
            count=task.sequences("train"),
            channels=task.input_size,
            kind=self.kind,
        )
        model = {**suggested["model"], **self._said_to_model()}
        train, given = dict(suggested["train"]), self._said_to_training()
        if any(name in given for name in _BUDGETS):
            train = {name: value for name, value in train.items() if name not in _BUDGETS}
        return model, {**train, "accelerator": self.device, **given}

    def _said_to_model(self) -> dict[str, Any]:
        said = {"hidden_size": self.hidden_size, "num_layers": self.num_layers}
        given = {name: value for name, value in said.items() if value is not None}
        return {**given, **(self.model_options or {})}

    def _said_to_training(self) -> dict[str, Any]:
        said = {
            "epochs": self.epochs,
            "steps": self.steps,
            "minutes": self.minutes,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "patience": self.patience,
        }
        given = {name: value for name, value in said.items() if value is not None}
        return {**given, **(self.train_options or {})}

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        if self.run_folder is not None:
            yield Path(self.run_folder)
            return
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            yield Path(folder)

    def _keep(self, run: Run, task: EstimatorTask) -> None:
        settings = run.settings
        if settings["status"] != "finished":
            raise KeyboardInterrupt("training was stopped before its end")
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn before they are replaced
            model = run.model()
        self.model_ = model
        self._built_with = {n: settings["model"][n] for n in ("name", "options", "shape")}
        self.preparation_ = task.preparation
        self.tried_ = settings.get("tried", [])
        self.history_ = run.metrics()
        if not len(task.parts["valid"]):  # what was looked at instead is the training part
            self.history_ = [
                {name: value for name, value in row.items() if not name.startswith("valid_")}
                for row in self.history_
            ]
        self.n_iter_ = int(settings["result"]["steps"])
        self.run_path_ = None if self.run_folder is None else run.path

    # Answers

    def _check_channels(self, collection: Collection) -> None:
        check_is_fitted(self, "model_")
        if collection.width != self.n_features_in_:
            raise DataError(
                explain(
                    "X",
                    expected=f"{self.n_features_in_} channels, as in fit",
                    got=collection.width,
                    remedy="Give the channels the model was trained on.",
                )
            )
        known = self.preparation_.raw_channels
        if self._named and collection.channels is not None and collection.channels != known:
            raise DataError(
                explain(
                    "X",
                    expected=f"the channels {', '.join(known)}, as in fit",
                    got=", ".join(collection.channels),
                    remedy="Bring the columns into the order of fit.",
                )
            )

    def _remember_channels(self, collection: Collection) -> None:
        self.n_features_in_ = collection.width
        self._named = collection.channels is not None
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if self._named:
            self.feature_names_in_ = np.array(collection.names(), dtype=object)

    def _outputs(
        self, series: list[np.ndarray], times: list[np.ndarray] | None = None
    ) -> np.ndarray:
        """Return what the network says to each series (n, outputs), float64."""
        names = [str(number) for number in range(len(series))]
        strange = in_words(strange_series(self.preparation_, series), names)
        if strange:
            warnings.warn(" ".join(strange), DataWarning, stacklevel=3)
        stamps = [None] * len(series) if times is None else times
        prepare = self.preparation_.prepare
        prepared = [prepare(one, own) for one, own in zip(series, stamps, strict=True)]
        return np.concatenate(answers_to(self.model_, self.preparation_, prepared))

    def _stream_outputs(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the outputs after each sample; memory does not grow."""
        check_is_fitted(self, "model_")
        stream = SampleStream(self.model_, self.preparation_)
        stamps = itertools.repeat(None) if times is None else times
        for sample, time in zip(samples, stamps, strict=False):
            stream.push(np.atleast_1d(np.asarray(sample)), time)
            yield stream.outputs()[0].double().numpy()

    # Pickles

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if "model_" in state:
            state["model_"] = freeze(state["model_"], **state["_built_with"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("model_"), dict):
            state["model_"] = thaw(state["model_"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags
