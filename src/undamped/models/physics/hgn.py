"""HGN (Toth, Rezende and others, 2020): a latent Hamiltonian system of images."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import Default, NonNegativeFloat, PositiveInt, Units
from undamped._base.registry import models
from undamped.models.physics.base import ENERGY, SYMPLECTIC, VOLUME, LayerOptions, StepOptions
from undamped.models.physics.srnn import SRNN
from undamped.models.task_model import TaskModel


class HGNOptions(LayerOptions, StepOptions, total=False):
    """Layers of T and V, and steps of the latent motion."""

    hidden_size: Annotated[Units, Default(64, "Width of the hidden layers.")]


@models.register("hgn")
class HGN(TaskModel):
    """Hamiltonian generative network: images are encoded as positions and momenta, which move.

    A few frames are encoded into a distribution of states (q, p); a learned separable energy moves
    a state by leapfrog; images are decoded from the positions alone. The model is far smaller than
    that of the paper, whose energy is a convolutional network: here it is T(p) + V(q) of a few
    numbers.

    Equation:
        (q₀, p₀) ~ N(μ(x₁, …, x_k), σ(x₁, …, x_k)),  (q, p)(t) by leapfrog of H = T(p) + V(q)
        x̂(t) = D(q(t));  loss = mean |x̂ − x|² + β KL(N(μ, σ) ‖ N(0, 1))

    Symbols:
        x frames, μ and σ a convolutional encoder, D a convolutional decoder, T and V perceptrons.

    Promise:
        The latent motion conserves its energy and phase volume, and every step is symplectic. Its
        energy need not be that of the system.

    Args:
        shape: The shape of the task: sequences of images, whose first frames are the input.
        latent_size: Number of latent positions; as many momenta.
        channels: Channels of the finer layer of encoder and decoder; the coarser has twice as many.
        hidden_size: Width of T and V, and of the layers between images and states.
        kl_weight: Weight β of the divergence; 0 for deterministic states.
        options: Layers of T and V, and steps of the motion: see `LayerOptions`, `StepOptions`.

    Example:
        >>> model = undamped.models.HGN(undamped.models.HGN.example_shape())
        >>> films = torch.rand(5, 3, 1, 16, 16)
        >>> model.film(films, [0.0, 0.1, 0.2]).shape
        torch.Size([3, 3, 1, 16, 16])

    Reference:
        P. Toth, D. Rezende, A. Jaegle, S. Racanière, A. Botev, I. Higgins. Hamiltonian generative
        networks. ICLR, 2020.
    """

    usual_choice = True
    uses = frozenset[Use]({"pictures", "target_times"})
    answers = frozenset[Answer]({"trajectory"})
    input_kinds = frozenset[InputKind]({"pictures"})
    sequential = True
    promises = (ENERGY, VOLUME, SYMPLECTIC)

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: PositiveInt = 2,
        channels: Units = 16,
        kl_weight: NonNegativeFloat = 1e-5,
        **options: Unpack[HGNOptions],
    ) -> None:
        super().__init__()
        frames = shape.length
        if shape.picture_shape is None or not frames or any(n % 4 for n in shape.picture_shape[1:]):
            raise ShapeError(
                "HGN needs sequences of equal length of images with sides of a multiple of 4, got "
                f"images {shape.picture_shape}, {frames or 'any number'} in a sequence. Choose a "
                "task such as pendulum-pictures."
            )
        self.frames, self.picture_shape = frames, shape.picture_shape
        self.latent_size, self.kl_weight = latent_size, kl_weight
        self.motion = SRNN(latent_size, **options)
        hidden_size: int = options["hidden_size"]  # type: ignore[typeddict-item]
        self.promises = self.motion.promises
        colours, height, width = self.picture_shape
        coarse = (2 * channels, height // 4, width // 4)
        entries = coarse[0] * coarse[1] * coarse[2]
        self.encoder = nn.Sequential(
            nn.Conv2d(frames * colours, channels, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(channels, 2 * channels, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(entries, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, 4 * latent_size),  # μ and ln σ of q and p
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent_size, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, entries),
            nn.SiLU(),
            nn.Unflatten(1, coarse),
            nn.ConvTranspose2d(2 * channels, channels, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(channels, colours, 4, stride=2, padding=1),
        )
        self._training_films: Tensor | None = None

    def encode(self, films: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and ln σ of the first states (q, p), (batch, 2 × latent) each.

        The argument has the first frames, (frames, batch, channels, height, width).
        """
        if films.shape[0] != self.frames or tuple(films.shape[2:]) != self.picture_shape:
            raise ShapeError(
                f"Films of HGN must be ({self.frames}, batch, "
                f"{', '.join(map(str, self.picture_shape))}), got {tuple(films.shape)}."
            )
        stacked = films.transpose(0, 1).flatten(1, 2)
        mean, log_spread = self.encoder(stacked).chunk(2, dim=-1)
        return mean, log_spread.clamp(-10, 5)

    def decode(self, positions: Tensor) -> Tensor:
        """Return images (…, channels, height, width) of positions (…, latent)."""
        flat = positions.flatten(0, -2)
        return self.decoder(flat).unflatten(0, positions.shape[:-1])

    def film(self, films: Tensor, times: Any) -> Tensor:
        """Return frames (times, batch, …) at rising times, after the first frames of films."""
        mean, log_spread = self.encode(films)
        start = mean
        if self.training and self.kl_weight:
            self._training_films = films.detach()
            start = mean + log_spread.exp() * torch.randn_like(mean)
        states = self.motion.trajectory(start, times, on_failure="return")
        return self.decode(states[..., : self.latent_size])

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of latent states."""
        return self.motion.energy(states)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return images at the target times, (outputs, batch, channels, height, width)."""
        if batch.target_times is None:
            raise OptionError("HGN needs batch.target_times. Set them, or call film.")
        films = batch.expanded().inputs
        return self.film(films.to(next(self.parameters()).dtype), batch.target_times), None

    def penalty(self) -> Tensor:
        """Return β KL(N(μ, σ) ‖ N(0, 1)) of the last training films."""
        if self._training_films is None or not self.kl_weight:
            return next(self.parameters()).new_zeros(())
        # Encoded once more, since a model that stores a graph cannot be copied.
        mean, log_spread = self.encode(self._training_films)
        divergence = (mean.square() + (2 * log_spread).exp() - 1) / 2 - log_spread
        return self.kl_weight * divergence.sum(-1).mean()

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with five small images."""
        return TaskShape(
            256,
            256,
            "pictures",
            answer="trajectory",
            needs=frozenset[Use]({"pictures", "target_times"}),
            picture_shape=(1, 16, 16),
            segments=(5,),
        )

    @property
    def promising(self) -> SRNN:
        """The latent motion, to which the promises apply."""
        return self.motion
