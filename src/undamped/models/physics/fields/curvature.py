"""Second derivatives of a perceptron with one output, written out.

A layer's input z is linear in the layer before, so all bending is in the activations: the Hessian
of y is a sum over layers of J' diag(c) J, with J how z moves and c how much the layer bends what
reaches y. So tangents go forward once, and nothing has to come back for each of them.
"""

from __future__ import annotations

from torch import Tensor

from undamped.models.physics.fields.smooth_perceptron import CURVES, SmoothPerceptron


class Curvature:
    """A perceptron with one output at a place: value, gradient, second derivatives.

    Equation:
        ∂²y/∂a∂b = Σ_k (∂z_k/∂a)ᵀ diag(σ''(z_k) ∘ ∂y/∂h_k) ∂z_k/∂b

    Symbols:
        z_k what goes into hidden layer k, h_k = σ(z_k), a and b directions.

    Args:
        net: The perceptron.
        x: The place, (…, input).

    Example:
        >>> at = Curvature(SmoothPerceptron(3, 1), torch.randn(5, 3))
        >>> at.value.shape, at.gradient.shape, at.along(at.enter(torch.eye(3))).shape
        (torch.Size([5]), torch.Size([5, 3]), torch.Size([5, 3, 3]))
    """

    def __init__(self, net: SmoothPerceptron, x: Tensor) -> None:
        curve = CURVES[net.activation]
        self._weights = [layer.weight for layer in net.hidden]
        self._slopes, bends = [], []
        for layer in net.hidden:
            z = layer(x)
            x = curve.value(z)
            self._slopes.append(curve.slope(z, x))
            bends.append(curve.bend(z, x, self._slopes[-1]))
        self.value = net.readout(x).squeeze(-1)
        """y, (…,)."""
        back: Tensor = net.readout.weight[0]
        self._bent: list[Tensor] = []  # from the last layer to the first
        for weight, slope, bend in zip(
            reversed(self._weights), reversed(self._slopes), reversed(bends), strict=True
        ):
            self._bent.append(bend * back)
            back = (back * slope) @ weight  # type: ignore[operator]
        self.gradient = back
        """∂y/∂x, (…, input)."""

    def enter(self, tangents: Tensor, features: slice = slice(None)) -> Tensor:
        """Return how the input of the first layer moves along tangents, (…, hidden).

        Args:
            tangents: Directions (…, features) of the place.
            features: Which features they move, if not all.
        """
        return tangents @ self._weights[0][:, features].T  # type: ignore[index]

    def along(self, moved: Tensor) -> Tensor:
        """Return the second derivatives along each pair of some directions, (…, k, k).

        Args:
            moved: How the input of the first layer moves along them, (…, k, hidden).
        """
        total: Tensor | None = None
        last = len(self._slopes) - 1
        for layer, (slope, bent) in enumerate(zip(self._slopes, reversed(self._bent), strict=True)):
            part = (moved * bent.unsqueeze(-2)) @ moved.mT
            total = part if total is None else total + part
            if layer < last:
                moved = (moved * slope.unsqueeze(-2)) @ self._weights[layer + 1].T  # type: ignore[union-attr]
        assert total is not None
        return total
