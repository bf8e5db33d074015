"""The options of the estimators, said once: ours and those in the manner of aeon take them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from undamped.lab.data.recordings.preparation import Missing
from undamped.lab.training.fit import AUTO


class EstimatorOptions:
    """Keeps the options of an estimator; `SequenceRegressor` says what they mean."""

    def __init__(
        self,
        model: str = AUTO,
        *,
        hidden_size: int | None = None,
        num_layers: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        train_options: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.2,
        patience: int | None = None,
        missing: Missing | Literal["auto"] = "auto",
        random_state: Any = None,
        verbose: bool = False,
        device: str = "auto",
        run_folder: str | Path | None = None,
    ) -> None:
        self.model = model
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.model_options = model_options
        self.epochs = epochs
        self.steps = steps
        self.minutes = minutes
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.train_options = train_options
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.run_folder = run_folder
        super().__init__()


class ClassifierOptions(EstimatorOptions):
    """Keeps the options of a classifier; `SequenceClassifier` says what they mean."""

    def __init__(
        self,
        model: str = AUTO,
        *,
        hidden_size: int | None = None,
        num_layers: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        train_options: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.2,
        patience: int | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        missing: Missing | Literal["auto"] = "auto",
        random_state: Any = None,
        verbose: bool = False,
        device: str = "auto",
        run_folder: str | Path | None = None,
    ) -> None:
        super().__init__(
            model,
            hidden_size=hidden_size,
            num_layers=num_layers,
            model_options=model_options,
            epochs=epochs,
            steps=steps,
            minutes=minutes,
            batch_size=batch_size,
            learning_rate=learning_rate,
            train_options=train_options,
            validation_fraction=validation_fraction,
            patience=patience,
            missing=missing,
            random_state=random_state,
            verbose=verbose,
            device=device,
            run_folder=run_folder,
        )
        self.class_weight = class_weight
