"""Noise-padded digits: a handwritten digit, followed by many steps of noise."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split

ROWS = 8


@tasks.register("digits")
class NoisePaddedDigits(ArrayTask):
    """Read a handwritten digit, then noise, then classify the digit.

    The 1,797 digits of 8 × 8 pixels that scikit-learn ships are read row by row, eight steps of
    eight pixels scaled to [0, 1]; noise fills the sequence up to `length`. As in the noise-padded
    CIFAR-10 task, one noise sequence is shared by all samples.
    Splits are stratified by class: 1,257 to train, 270 each to validate and to test.

    Args:
        length: Steps of a sequence, the eight rows included.
        noise: Distribution of the noise: standard normal, as the published program has it, or
            uniform on [0, 1), as the paper's text says.
        fresh_noise: Whether every sample has its own noise, different in each epoch.
        split_seed: Seed of the split.
        seed: Seed of noise and order.

    Reference:
        E. Alpaydin, C. Kaynak. Optical recognition of handwritten digits. UCI, 1998. Padding
        after B. Chang et al. AntisymmetricRNN. ICLR, 2019.
    """

    # Chosen on the validation split; docs/results.md names the commands.
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64},
            "train": {
                "learning_rate": 0.01,
                "batch_size": 64,
                "clip": 1.0,
                "epochs": 24,
                "schedule": "cosine",
            },
        },
        "unicornn": {"model": {"dt": 0.3, "alpha": 13.0}},
    }

    input_size = ROWS
    output_size = 10

    def __init__(
        self,
        length: Annotated[int, Range(low=ROWS)] = 500,
        *,
        noise: Literal["normal", "uniform"] = "normal",
        fresh_noise: bool = False,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length = length
        self.noise = noise
        self.fresh_noise = fresh_noise
        self.split_seed = split_seed

    @cached_property
    def _data(self) -> dict[str, tuple[Tensor, Tensor]]:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images, labels = load_digits(return_X_y=True)
        train_x, rest_x, train_y, rest_y = train_test_split(
            images, labels, test_size=540, stratify=labels, random_state=self.split_seed
        )
        valid_x, test_x, valid_y, test_y = train_test_split(
            rest_x, rest_y, test_size=270, stratify=rest_y, random_state=self.split_seed
        )
        return {
            split: (torch.tensor(x, dtype=torch.float32).view(-1, ROWS, ROWS) / 16, torch.tensor(y))
            for split, x, y in (
                ("train", train_x, train_y),
                ("valid", valid_x, valid_y),
                ("test", test_x, test_y),
            )
        }

    @cached_property
    def _shared_noise(self) -> Tensor:
        return self._draw_noise(1, self.generator("train", 0, part=2))

    def _draw_noise(self, size: int, generator: torch.Generator) -> Tensor:
        draw = torch.randn if self.noise == "normal" else torch.rand
        return draw(self.length - ROWS, size, ROWS, generator=generator)

    def harder(self) -> dict[str, Any]:
        """Return a longer sequence."""
        return {"length": max(1000, 2 * self.length)}

    @property
    def chance(self) -> Chance:
        """The loss of equal probabilities, and the accuracy of the commonest test class."""
        labels = self._data["test"][1]
        frequency = torch.bincount(labels, minlength=10).max().item() / len(labels)
        return Chance(loss=math.log(10), metric=frequency, rule="always the commonest digit")

    def sequences(self, split: Split) -> int:
        """Return the number of digits of a split."""
        return len(self._data[split][1])

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return the chosen digits, followed by noise."""
        images, labels = self._data[split]
        rows = images[index].transpose(0, 1)
        if self.fresh_noise and split != "train":
            # For the whole split, so that batches of any size have the same sequences.
            every = self._draw_noise(self.sequences(split), self.generator(split, 0))
            noise = every[:, index]
        elif self.fresh_noise:
            noise = self._draw_noise(len(index), generator)
        else:
            noise = self._shared_noise.expand(-1, len(index), -1)
        return Batch(torch.cat([rows, noise]), labels[index])
