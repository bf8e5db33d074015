"""HGN (Toth, Rezende and others, 2020): a Hamiltonian system behind pictures."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.options import NonNegativeFloat, PositiveInt, Units
from undamped._base.registry import models
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.promised import ENERGY, SYMPLECTIC, VOLUME
from undamped.models.physics.srnn import SRNN
from undamped.models.physics.step_options import StepOptions
from undamped.models.task_model import TaskModel


@models.register("hgn")
class HGN(TaskModel):
    """Hamiltonian generative network: pictures become positions and momenta, which move.

    A few frames are encoded into a distribution of states (q, p); a learned separable energy moves
    a state by leapfrog; pictures are made of the positions alone. Far smaller than the paper's,
    whose energy is a convolutional network on latent maps: here it is T(p) + V(q) of a few numbers.

    Equation:
        (q₀, p₀) ~ N(μ(x₁, …, x_k), σ(x₁, …, x_k)),  (q, p)(t) by leapfrog of H = T(p) + V(q)
        x̂(t) = D(q(t));  loss = mean |x̂ − x|² + β KL(N(μ, σ) ‖ N(0, 1))

    Symbols:
        x frames, μ and σ a convolutional encoder, D a convolutional decoder, T and V perceptrons.

    Promise:
        Of the motion behind the pictures: it keeps its energy and phase volume, and every step is
        symplectic. Nothing promises that its energy is the system's.

    Args:
        shape: The shape of the task: sequences of pictures, whose first frames are seen.
        latent_size: Number of positions behind the pictures; as many momenta.
        channels: Channels of the finer layer of encoder and decoder; the coarser has twice as many.
        hidden_size: Width of T and V, and of the layers between pictures and states.
        hidden_layers: Hidden layers of T and V.
        activation: Activation of T and V.
        kl_weight: β; 0 for states without chance.
        solve: Method, step_size and gradient of the motion: see `StepOptions`.

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
        hidden_size: Units = 64,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        kl_weight: NonNegativeFloat = 1e-5,
        **solve: Unpack[StepOptions],
    ) -> None:
        super().__init__()
        frames = shape.length
        if shape.picture_shape is None or not frames or any(n % 4 for n in shape.picture_shape[1:]):
            raise ShapeError(
                explain(
                    "HGN.shape",
                    expected="sequences of as many pictures each, with sides of a multiple of 4",
                    got=f"pictures {shape.picture_shape}, {frames or 'any'} in a sequence",
                    remedy="Choose a task such as pendulum-pictures.",
                )
            )
        self.frames, self.picture_shape = frames, shape.picture_shape
        self.latent_size, self.kl_weight = latent_size, kl_weight
        self.motion = SRNN(
            latent_size,
            hidden_size=hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            **solve,
        )
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
        self._learnt_from: Tensor | None = None

    def encode(self, films: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and ln σ of the states (q, p) that films begin with, (batch, 2 × latent) each.

        Args:
            films: The frames that are seen, (frames, batch, channels, height, width).
        """
        if films.shape[0] != self.frames or tuple(films.shape[2:]) != self.picture_shape:
            raise ShapeError(
                explain(
                    "films of HGN",
                    expected=f"({self.frames}, batch, {', '.join(map(str, self.picture_shape))})",
                    got=tuple(films.shape),
                    remedy="Cut or scale the films.",
                )
            )
        stacked = films.transpose(0, 1).flatten(1, 2)
        mean, log_spread = self.encoder(stacked).chunk(2, dim=-1)
        return mean, log_spread.clamp(-10, 5)

    def decode(self, positions: Tensor) -> Tensor:
        """Return pictures (…, channels, height, width) of positions (…, latent)."""
        flat = positions.flatten(0, -2)
        return self.decoder(flat).unflatten(0, positions.shape[:-1])

    def film(self, films: Tensor, times: Any) -> Tensor:
        """Return what films show at some times after their first frame, (times, batch, …).

        Args:
            films: The frames that are seen.
            times: Rising times: one list for all, or (times, batch).
        """
        mean, log_spread = self.encode(films)
        start = mean
        if self.training and self.kl_weight:
            self._learnt_from = films.detach()
            start = mean + log_spread.exp() * torch.randn_like(mean)
        states = self.motion.trajectory(start, times, on_failure="return")
        return self.decode(states[..., : self.latent_size])

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return pictures at the target times, (outputs, batch, channels, height, width)."""
        if batch.target_times is None:
            raise OptionError(
                explain(
                    "batch.target_times",
                    expected="when pictures are asked for",
                    got="none",
                    remedy="Give times, or call film.",
                )
            )
        films = batch.expanded().inputs
        return self.film(films.to(next(self.parameters()).dtype), batch.target_times), None

    def penalty(self) -> Tensor:
        """Return β KL(N(μ, σ) ‖ N(0, 1)) of the last films that were learnt from."""
        if self._learnt_from is None or not self.kl_weight:
            return next(self.parameters()).new_zeros(())
        # Encoded once more: what is kept in between must not hold a graph, or no copy can be made.
        mean, log_spread = self.encode(self._learnt_from)
        apart = (mean.square() + (2 * log_spread).exp() - 1) / 2 - log_spread
        return self.kl_weight * apart.sum(-1).mean()

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with five small pictures."""
        return TaskShape(
            256,
            256,
            "pictures",
            answer="trajectory",
            needs=frozenset[Use]({"pictures", "target_times"}),
            picture_shape=(1, 16, 16),
            segments=(5,),
        )

    # What promises are measured on: the motion behind the pictures

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states behind pictures, and no inputs."""
        return self.motion.example_states(count, generator)

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of states behind pictures."""
        return self.motion.derivative(states, u)

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of states behind pictures."""
        return self.motion.energy(states)

    def supplied(self, states: Tensor, u: Tensor | None) -> Tensor:
        """Return the power of inputs, of which there are none."""
        return self.motion.supplied(states, u)

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random states behind pictures."""
        return self.motion.phase_states(count, generator)

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step behind the pictures."""
        return self.motion.phase_step(states)
