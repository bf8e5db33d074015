"""The base class of the estimators: parameters, training, predictions, pickles and streams."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, DataWarning, OptionError, shortened
from undamped._base.options import Range, convert
from undamped.lab.data.recordings.preparation import Kind, Missing, Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import find_suspicions, in_words, strange_series
from undamped.lab.estimators.inputs import Collection, collect
from undamped.lab.estimators.selection import EstimatorTask
from undamped.lab.tasks.series_defaults import suggest
from undamped.lab.training import Run, fit
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import BUDGETS
from undamped.lab.training.prediction import predict_prepared
from undamped.lab.training.streaming import SampleStream
from undamped.models.for_task import model_for, model_options
from undamped.models.task_model import TaskModel

_Fraction = Annotated[float, Range(low=0, high=1, open_high=True)]
_FEWEST_STEPS, _MOST_STEPS = 300, 3000
_SEQUENCE_STEPS = 3_000_000  # time steps that a training reads, within those limits
PATIENCE = 10  # validations without an improvement, of the 25 in a training

_PARAMETERS = """\
    model: The registry name of a model; 'undamped list models' shows all. "auto" compares a
        portfolio of models on the validation split; `tried_` lists them with their scores.
    hidden_size: Size of the hidden state of a network.
    num_layers: Number of its layers.
    model_options: Other options of the model, by name.
    epochs: Number of passes over the training data.
    steps: Number of batches, in place of epochs.
    minutes: Training time, in place of epochs; "auto" without a budget takes five minutes, for
        forecasts half a minute.
    batch_size: Series (for forecasts, windows) per batch.
    learning_rate: Learning rate of the optimizer.
    train_options: Other options of training, by name; see `undamped.lab.training.TrainOptions`.
    validation_fraction: Fraction of the series (for forecasts, of the end of every series) used
        for validation. With 0 there is no early stopping.
    patience: Stop after this many validations without an improvement.
    missing: Treatment of NaN: "interpolate" interpolates linearly, "mask" adds channels that mark
        missing values, "auto" chooses "mask" if the timestamps are irregular.
    random_state: The source of random numbers; with an integer two fits agree bit for bit.
    verbose: Whether to show a progress bar.
    device: Where to train: "auto", "cpu", "gpu", …; predictions run on the CPU.
    run_folder: Where to create the run folder, for 'undamped show' and others; by default it is
        temporary."""


@dataclass(repr=False, eq=False)
class TrainParams:
    """The parameters of every estimator.

    Subclasses are data classes too: their generated `__init__` has the explicit signature that
    `get_params` of scikit-learn reads. A line `{parameters}` in the docstring of a subclass is
    replaced by the description of the parameters below.
    """

    model: str = AUTO
    _: KW_ONLY
    hidden_size: int | None = None
    num_layers: int | None = None
    model_options: Mapping[str, Any] | None = None
    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    train_options: Mapping[str, Any] | None = None
    validation_fraction: float = 0.2
    patience: int | None = None
    missing: Missing | Literal["auto"] = "auto"
    random_state: Any = None
    verbose: bool = False
    device: str = "auto"
    run_folder: str | Path | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__:
            cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("    {parameters}", _PARAMETERS)


def starting_options(
    model: str, *, length: int, count: int, channels: int, kind: Kind
) -> dict[str, dict[str, Any]]:
    """Return options of the model and of training that suit the size of the data.

    They start from `undamped.lab.tasks.series_defaults`; the budget of an estimator is in steps,
    and it stops early.

    Args:
        model: The registry name of the network; only options that it accepts are returned.
        length: Steps of a typical series.
        count: Series in the training split.
        channels: Features per step.
        kind: The kind of target.
    """
    suggested = suggest(length, count, channels, kind, model)
    accepted = model_options(model)
    options = {**suggested["model"], "hidden_size": 64}
    train = {**suggested["train"], "patience": PATIENCE}
    # A few series fill small batches; with more of them memory limits the size.
    train["batch_size"] = max(min(16, count), train["batch_size"])
    del train["epochs"]
    steps = _SEQUENCE_STEPS / (length * train["batch_size"])
    train["steps"] = round(min(_MOST_STEPS, max(_FEWEST_STEPS, steps)))
    return {"model": {n: v for n, v in options.items() if n in accepted}, "train": train}


class SequenceEstimator(TrainParams, BaseEstimator):
    """The base class of `SequenceClassifier`, `SequenceRegressor` and `SequenceForecaster`."""

    kind: ClassVar[Kind]

    @property
    def task_class(self) -> type[EstimatorTask]:
        """The task the model is trained on."""
        return EstimatorTask

    # Set by fit.
    model_: TaskModel
    preparation_: Preparation
    history_: list[dict[str, float]]
    tried_: list[dict[str, Any]]
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray  # names of the channels, if the series had any
    run_path_: Path | None

    # Training

    def _fit_series(self, series_set: SeriesSet, **task_options: Any) -> None:
        """Split and prepare the data, train, and set the fitted attributes."""
        fraction = convert(
            _Fraction, self.validation_fraction, f"{type(self).__name__}.validation_fraction"
        )
        if fraction and len(series_set) < 2 and self.kind != "forecast":
            raise DataError(
                "X must hold at least two series, one for training and one for validation, got "
                "1 sample. Add series, or set validation_fraction=0."
            )
        for sentence in find_suspicions(series_set) if self.kind != "forecast" else ():
            warnings.warn(sentence, DataWarning, stacklevel=3)
        missing = convert(Missing | Literal["auto"], self.missing, f"{type(self).__name__}.missing")
        seed = self._seed()
        task = self.task_class(
            series_set,
            kind=self.kind,
            missing=missing,
            fractions=(1 - fraction, fraction, 0.0),
            split_seed=seed,
            seed=seed,
            **task_options,
        )
        model_options, train = self._resolve_options(task)
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
            self._store_fit(run, task)

    def _seed(self) -> int:
        try:
            generator = check_random_state(self.random_state)
        except ValueError:
            raise OptionError(
                f"{type(self).__name__}.random_state must be None, an integer from 0 to 4294967295 "
                f"or a NumPy RandomState, got {shortened(repr(self.random_state))}."
            ) from None
        return int(generator.randint(np.iinfo(np.int32).max))

    def _resolve_options(self, task: EstimatorTask) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options of the model and of training: the user's, completed by defaults."""
        if self.model == AUTO:
            return self._model_options(), {"accelerator": self.device, **self._train_options()}
        suggested = starting_options(
            self.model,
            length=int(np.median(task.series_set.lengths)) - (task.horizon or 0),
            count=task.sequences("train"),
            channels=task.input_size,
            kind=self.kind,
        )
        model = {**suggested["model"], **self._model_options()}
        train, user_options = dict(suggested["train"]), self._train_options()
        if any(name in user_options for name in BUDGETS):
            train = {name: value for name, value in train.items() if name not in BUDGETS}
        return model, {**train, "accelerator": self.device, **user_options}

    def _model_options(self) -> dict[str, Any]:
        return self._user_options("hidden_size", "num_layers") | dict(self.model_options or {})

    def _train_options(self) -> dict[str, Any]:
        names = ("epochs", "steps", "minutes", "batch_size", "learning_rate", "patience")
        return self._user_options(*names) | dict(self.train_options or {})

    def _user_options(self, *names: str) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value is not None}

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        if self.run_folder is not None:
            yield Path(self.run_folder)
            return
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            yield Path(folder)

    def _store_fit(self, run: Run, task: EstimatorTask) -> None:
        settings = run.settings
        if settings["status"] != "finished":
            raise KeyboardInterrupt("training was interrupted")
        with torch.random.fork_rng(devices=[]):  # building a model draws initial weights
            model = run.model()
        self.model_ = model
        self._build_options = {n: settings["model"][n] for n in ("name", "options", "shape")}
        self.preparation_ = task.preparation
        self.tried_ = settings.get("tried", [])
        self.history_ = run.metrics()
        if not len(task.splits["valid"]):  # then scores are those of the training part
            self.history_ = [
                {name: value for name, value in row.items() if not name.startswith("valid_")}
                for row in self.history_
            ]
        self.n_iter_ = int(settings["result"]["steps"])
        self.run_path_ = None if self.run_folder is None else run.path

    # Predictions

    def _predict_outputs(self, X: Any) -> np.ndarray:
        """Check X and return the outputs of the model (n, outputs), float64."""
        check_is_fitted(self, "model_")
        collection = collect(X)
        self._check_channels(collection)
        return self._outputs(collection.series, collection.times)

    def _check_channels(self, collection: Collection) -> None:
        check_is_fitted(self, "model_")
        if collection.width != self.n_features_in_:
            raise DataError(
                f"X must have {self.n_features_in_} channels, as in fit, got {collection.width}."
            )
        expected = self.preparation_.file_channels
        if self._named and collection.channels is not None and collection.channels != expected:
            raise DataError(
                f"X must have the channels {shortened(', '.join(expected))} in this order, as in "
                f"fit, got {shortened(', '.join(collection.channels))}."
            )

    def _series_set(
        self, collection: Collection, targets: Any = None, groups: np.ndarray | None = None
    ) -> SeriesSet:
        """Return the training data, and store the names of the channels."""
        self.n_features_in_ = collection.width
        self._named = collection.channels is not None
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if self._named:
            self.feature_names_in_ = np.array(collection.names(), dtype=object)
        return SeriesSet(
            collection.series,
            collection.names(),
            targets,
            groups=groups,
            source="X",
            times=collection.times,
            blurred=collection.blurred,
        )

    def _outputs(
        self, series: list[np.ndarray], times: list[np.ndarray] | None = None
    ) -> np.ndarray:
        """Return the outputs of the model for each series (n, outputs), float64."""
        names = [str(index) for index in range(len(series))]
        notes = in_words(strange_series(self.preparation_, series), names)
        if notes:
            warnings.warn(" ".join(notes), DataWarning, stacklevel=3)
        timestamps = [None] * len(series) if times is None else times
        prepare = self.preparation_.prepare
        prepared = [prepare(values, t) for values, t in zip(series, timestamps, strict=True)]
        return np.concatenate(predict_prepared(self.model_, self.preparation_, prepared))

    def _stream_outputs(
        self, samples: Iterable[Any], times: Iterable[float] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the outputs after each sample; memory does not grow."""
        check_is_fitted(self, "model_")
        stream = SampleStream(self.model_, self.preparation_)
        timestamps = itertools.repeat(None) if times is None else times
        for sample, time in zip(samples, timestamps, strict=False):
            stream.push(np.atleast_1d(np.asarray(sample)), time)
            yield stream.outputs()[0].double().numpy()

    # Pickles

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if "model_" in state:
            # Plain values: a live module would bring compiled kernels and hooks into the file.
            weights = state["model_"].state_dict()
            state["model_"] = state["_build_options"] | {
                "weights": {name: value.cpu().numpy().copy() for name, value in weights.items()}
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("model_"), dict):
            state["model_"] = _rebuild(state["model_"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


def _rebuild(plain: dict[str, Any]) -> TaskModel:
    """Build a model from the values in a pickle, without changing the global random numbers."""
    with torch.random.fork_rng(devices=[]):
        model = model_for(TaskShape.from_dict(plain["shape"]), plain["name"], plain["options"])
    weights = {name: torch.as_tensor(value) for name, value in plain["weights"].items()}
    model.load_state_dict(weights)
    return model.eval()
