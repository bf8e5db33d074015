"""What implicit methods promise where a field is stiff."""

from __future__ import annotations

from undamped._base.promises import Kind, Promise

A_STABLE = (Promise(Kind.A_STABLE, "what decays does not grow, whatever the step size"),)
L_STABLE = (*A_STABLE, Promise(Kind.L_STABLE, "what decays at once is gone after a step"))
