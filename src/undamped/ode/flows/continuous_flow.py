"""Continuous normalising flows and FFJORD (Grathwohl and others, 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt, convert
from undamped._base.promises import Kind, Promise
from undamped.ode.fields.perceptron import BottleneckField, ConcatSquashField
from undamped.ode.flows.input_checks import check_context, fitting, type_of
from undamped.ode.flows.solving import FlowOptions, SolvingModule

TraceKind = Literal["exact", "hutchinson", "bottleneck"]
NoiseKind = Literal["gaussian", "rademacher"]
TOLERANCE = 1e-5
"""Default tolerance, fine enough for densities."""


def draw_noise(kind: NoiseKind, shape: torch.Size, like: Tensor, generator: Any = None) -> Tensor:
    """Draw noise of mean zero and unit covariance.

    Args:
        kind: Gaussian, or signs.
        shape: Its shape.
        like: A tensor of the same type and device.
        generator: Where the random numbers come from.
    """
    options = {"dtype": like.dtype, "device": like.device, "generator": generator}
    if kind == "gaussian":
        return torch.randn(shape, **options)
    return torch.randint(0, 2, shape, **options) * 2 - 1


def field_and_trace(
    field: Callable[[Any, Tensor], Tensor], t: Any, z: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, tr ∂f/∂z (batch,), and ‖εᵀ ∂f/∂z‖² (batch,).

    Without noise the trace is exact and the last is the squared Frobenius norm; with noise both
    are unbiased estimates of those.

    Args:
        field: f, on (batch, features).
        t: Time.
        z: State.
        noise: ε, like z, held fixed during a solve; None for the exact trace.
    """
    graph = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        t, leaf = _usable(t), _leaf(z, graph)
        value = field(t, leaf)
        if noise is not None:
            row = _product(_usable(noise), value, leaf, graph)
            trace, frobenius = (row * noise).sum(1), row.pow(2).sum(1)
        else:
            trace = frobenius = torch.zeros_like(leaf[:, 0])
            for k in range(z.shape[1]):
                row = _product(None, value[:, k].sum(), leaf, graph)
                trace = trace + row[:, k]
                frobenius = frobenius + row.pow(2).sum(1)
    return _results(graph, value, trace, frobenius)


def bottleneck_trace(
    field: Any, t: Any, z: Tensor, noise: Tensor, wide: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, an estimate of its trace from noise of few dimensions, and ‖ηᵀ ∂f/∂z‖².

    Equation:
        tr ∂f/∂z = tr(∂h/∂z ∂g/∂h) = E[εᵀ ∂h/∂z ∂g/∂h ε] for f = g ∘ h

    Args:
        field: f with its two halves: `narrow` returns few features, and `widen` dz/dt from them.
        t: Time.
        z: State.
        noise: ε, like the bottleneck's features.
        wide: η, noise like z, for the norm of the Jacobian.
    """
    graph = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        t, leaf, noise, wide = _usable(t), _leaf(z, graph), _usable(noise), _usable(wide)
        few = field.narrow(t, leaf)
        value = field.widen(t, few)
        across = _product(noise, few, leaf, graph)
        trace = (_product(across, value, few, graph) * noise).sum(1)
        frobenius = _product(wide, value, leaf, graph).pow(2).sum(1)
    return _results(graph, value, trace, frobenius)


def _usable(part: Any) -> Any:
    """Return a tensor autograd may graph: those of inference mode have to be copied."""
    return part.clone() if isinstance(part, Tensor) and part.is_inference() else part


def _leaf(z: Tensor, graph: bool) -> Tensor:
    return z if graph and z.requires_grad else _usable(z).detach().requires_grad_()


def _product(row: Tensor | None, value: Tensor, of: Tensor, graph: bool) -> Tensor:
    """Return rowᵀ ∂value/∂of, which is 0 where the value does not depend on it."""
    if not (value.requires_grad and of.requires_grad):
        return torch.zeros_like(of)
    (product,) = torch.autograd.grad(
        value, of, row, create_graph=graph, retain_graph=True, materialize_grads=True
    )
    return product


def _results(graph: bool, *results: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value, trace, frobenius = results if graph else (result.detach() for result in results)
    return value, trace, frobenius


class _Dynamics(nn.Module):
    """State, log-density and regularisers together, with the noise of one solve.

    Args:
        field: f.
        noise: What the trace is estimated from; None for the exact one.
        wide: Noise like the data, where a bottleneck's is not; None without a bottleneck.
        context: Condition.
    """

    def __init__(
        self,
        field: nn.Module,
        noise: Tensor | None,
        wide: Tensor | None = None,
        context: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.field, self.noise, self.wide, self.context = field, noise, wide, context

    def context_tensors(self) -> list[Tensor]:
        return [] if self.context is None else [self.context]

    def _field(self, t: Any, z: Tensor) -> Tensor:
        if self.context is None:
            return self.field(t, z)
        return self.field(t, torch.cat((z, self.context), dim=1))

    def forward(self, t: Any, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = state[0]
        if self.wide is not None:
            assert self.noise is not None
            value, trace, frobenius = bottleneck_trace(self.field, t, z, self.noise, self.wide)
        else:
            value, trace, frobenius = field_and_trace(self._field, t, z, self.noise)
        return value, -trace, value.pow(2).sum(1), frobenius


@dataclass(frozen=True)
class FlowResult:
    """What a flow returns for samples.

    Args:
        base: The points of the base distribution that belong to them, (batch, features).
        log_prob: Their log-density, (batch,).
        kinetic: ∫ ‖f‖² dt, (batch,).
        jacobian: ∫ ‖∂f/∂z‖² dt, or its estimate, (batch,).
    """

    base: Tensor
    log_prob: Tensor
    kinetic: Tensor
    jacobian: Tensor


class ContinuousFlow(SolvingModule):
    """A continuous normalising flow between a normal distribution at 0 and the data at T.

    Equation:
        d log p(z(t))/dt = −tr ∂f/∂z

    Symbols:
        z state, f field, T end time. The trace is exact, Hutchinson's εᵀ(∂f/∂z)ε with the noise
        ε fixed during a solve, or the same inside a bottleneck.

    Promise:
        Invertible: samples and densities come from the same field, solved either way. Evaluated,
        the log-density changes by the log-determinant of the flow's Jacobian, and the density
        integrates to one.

    Args:
        field: f, on (t, (batch, features)), or on the condition concatenated to the state.
        size: Features of the data.
        trace: How the trace is computed while training; evaluation always uses the exact one.
        noise: Distribution of ε.
        end: T.
        train_end: Whether T is learned.
        how: Method, rtol and atol (1e-5 by default) or step_size, max_steps and gradient: see
            `FlowOptions`.

    Example:
        >>> flow = undamped.ode.ContinuousFlow(ConcatSquashField(2), 2)
        >>> loss = -flow.log_prob(torch.randn(64, 2)).mean()

    Reference:
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018. W. Grathwohl
        and others. FFJORD. ICLR, 2019. Regularisers: C. Finlay and others. How to train your
        neural ODE. ICML, 2020.
    """

    answers: ClassVar[frozenset[str]] = frozenset({"density"})
    promises: tuple[Promise, ...] = (
        Promise(Kind.INVERTIBLE_FLOW, "data and base are carried into each other"),
    )

    @checked
    def __init__(
        self,
        field: nn.Module,
        size: PositiveInt,
        *,
        trace: TraceKind = "hutchinson",
        noise: NoiseKind = "gaussian",
        end: PositiveFloat = 0.5,
        train_end: bool = False,
        **how: Unpack[FlowOptions],
    ) -> None:
        super().__init__(how)
        if self.step_size is None:
            self.rtol, self.atol = self.rtol or TOLERANCE, self.atol or TOLERANCE
        if trace == "bottleneck" and not (hasattr(field, "narrow") and hasattr(field, "widen")):
            raise OptionError(
                "trace='bottleneck' needs a field with `narrow` and `widen`, got "
                f"{type(field).__name__}. Use BottleneckField, or trace='hutchinson'."
            )
        if trace == "exact" and noise != "gaussian":
            raise OptionError(
                f"noise='{noise}' has no effect with trace='exact'. Choose trace='hutchinson' to "
                "use it."
            )
        self.field, self.size = field, size
        self.trace: TraceKind = trace
        self.noise: NoiseKind = noise
        self.root_end = nn.Parameter(torch.tensor(math.sqrt(end)), requires_grad=train_end)

    @property
    def end(self) -> Tensor:
        """T, positive whatever training does."""
        return self.root_end**2

    def _dynamics(self, x: Tensor, context: Tensor | None, generator: Any) -> _Dynamics:
        if not self.training or self.trace == "exact":
            return _Dynamics(self.field, None, None, context)
        through = self.trace == "bottleneck"
        width = self.field.bottleneck_size if through else self.size
        shape = torch.Size((x.shape[0], int(width)))  # type: ignore[arg-type]
        noise = draw_noise(self.noise, shape, x, generator)
        wide = draw_noise(self.noise, x.shape, x, generator) if through else None
        return _Dynamics(self.field, noise, wide, context)

    def _own_type(self) -> torch.dtype | None:
        """Return the type of a field of this library; other fields may convert their inputs."""
        ours = isinstance(self.field, ConcatSquashField | BottleneckField)
        return type_of(self.field) if ours else None

    def _flow(self, x: Tensor, forwards: bool, context: Any, generator: Any) -> tuple[Tensor, ...]:
        if context is not None and self.trace == "bottleneck":
            raise OptionError(
                "trace='bottleneck' takes no context. Use ConcatSquashField with context_size and "
                "trace='hutchinson'."
            )
        check_context(context, x, getattr(self.field, "context_size", None), self._own_type())
        zeros = x.new_zeros(x.shape[0])
        end = self.end.to(x.dtype)
        ends = [torch.zeros_like(end), end]
        times = torch.stack(ends if forwards else ends[::-1])
        dynamics = self._dynamics(x, context, generator)
        return self.solve_through(dynamics, (x, zeros, zeros, zeros), times).final

    def base_log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of a normal distribution, (batch,)."""
        return -0.5 * (z.pow(2).sum(1) + self.size * math.log(2 * math.pi))

    def forward(
        self, x: Tensor, context: Tensor | None = None, generator: torch.Generator | None = None
    ) -> FlowResult:
        """Carry data (batch, features) to the base distribution; return densities and costs.

        Args:
            x: Data.
            context: Condition, (batch, context features).
            generator: Where the noise of the trace comes from.
        """
        x = fitting(x, self.size, self._own_type(), f"{type(self).__name__} data", rows=True)
        z, change, kinetic, jacobian = self._flow(x, False, context, generator)
        # Going back in time the integrals come out negative: change = +∫₀ᵀ tr.
        return FlowResult(z, self.base_log_prob(z) - change, -kinetic, -jacobian)

    def carry(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return data (batch, features) as points of the base distribution.

        Args:
            state: Data.
            context: Condition, (batch, context features).
        """
        return self._flow(state, False, context, None)[0]

    def carry_back(self, state: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the data that belong to points of the base distribution."""
        return self._flow(state, True, context, None)[0]

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return random data, and random conditions where the field takes one."""
        like = self.root_end
        x = torch.randn(count, self.size, generator=generator).to(like)
        width = getattr(self.field, "context_size", 0)
        return x, torch.randn(count, width, generator=generator).to(like) if width else None

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x), (batch,)."""
        return self(x, context).log_prob

    def sample(
        self,
        count: NonNegativeInt,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw samples (count, features) and return them with their log-densities (count,).

        Args:
            count: How many.
            context: Condition, (count, context features).
            generator: Where the random numbers come from.
        """
        z = torch.randn(
            convert(NonNegativeInt, count, f"{type(self).__name__}.sample.count"),
            self.size,
            generator=generator,
            dtype=type_of(self.field) or self.root_end.dtype,
            device=self.root_end.device,
        )
        x, change, _, _ = self._flow(z, True, context, generator)
        return x, self.base_log_prob(z) + change
