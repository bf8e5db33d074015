"""Instruments: they measure how far signals and gradients travel in a model, in any nn.Module.

They never train. Each returns a small record that draws itself by `.plot()` or `.save_figure(path)`
and has `.to_dict()` for JSON. `undamped diagnose` uses the registered instruments.
"""

from undamped.analysis.attention import Attention, StepDrift, attention, attention_of, step_drift
from undamped.analysis.attention_theory import (
    attention_exponent,
    sparse_attention_bound,
    sparse_attention_gradient,
    uniform_attention_gradient,
)
from undamped.analysis.core import InapplicableError, Judgement, Probe, Result
from undamped.analysis.core.statistics import Trend
from undamped.analysis.cost import Cost, cost, count_flops, count_parameters
from undamped.analysis.fisher_memory import FisherMemory, fisher_memory
from undamped.analysis.gradient_flow import GradientFlow, depth_flow, gradient_flow
from undamped.analysis.gradient_preservation import GradientPreservation, gradient_preservation
from undamped.analysis.jacobian import (
    JacobianProduct,
    Lyapunov,
    Spectrum,
    jacobian_of,
    jacobian_product,
    lyapunov_exponents,
    spectrum,
    step_jacobians,
)
from undamped.analysis.mean_field import (
    DepthSimulation,
    MeanField,
    PhaseDiagram,
    critical_weight_scale,
    mean_field,
    phase_diagram,
    simulate_depth,
)
from undamped.analysis.normality import (
    Normality,
    SchurStructure,
    henrici_number,
    normality,
    schur_structure,
)
from undamped.analysis.ode_gradients import (
    GradientComparison,
    compare_field_gradients,
    compare_gradients,
)
from undamped.analysis.oscillators import (
    EffectiveSteps,
    Energy,
    InversionError,
    PhaseVolume,
    effective_steps,
    energy_drift,
    inversion_error,
    phase_volume,
)
from undamped.analysis.promises import Measurement, measure
from undamped.analysis.recall import Recall, recall
from undamped.analysis.relation_map import RelationMap, relations
from undamped.analysis.retention import Retention, retention
from undamped.analysis.stiffness import (
    EulerStability,
    adjoint_decay,
    compare_stiffness,
    eigenvalue_pairs,
    euler_stability,
)
from undamped.analysis.unicornn import gradient_bound, long_term_gradient, state_bound

__all__ = [
    "Attention",
    "Cost",
    "DepthSimulation",
    "EffectiveSteps",
    "Energy",
    "EulerStability",
    "FisherMemory",
    "GradientComparison",
    "GradientFlow",
    "GradientPreservation",
    "InapplicableError",
    "InversionError",
    "JacobianProduct",
    "Judgement",
    "Lyapunov",
    "MeanField",
    "Measurement",
    "Normality",
    "PhaseDiagram",
    "PhaseVolume",
    "Probe",
    "Recall",
    "RelationMap",
    "Result",
    "Retention",
    "SchurStructure",
    "Spectrum",
    "StepDrift",
    "Trend",
    "adjoint_decay",
    "attention",
    "attention_exponent",
    "attention_of",
    "compare_field_gradients",
    "compare_gradients",
    "compare_stiffness",
    "cost",
    "count_flops",
    "count_parameters",
    "critical_weight_scale",
    "depth_flow",
    "effective_steps",
    "eigenvalue_pairs",
    "energy_drift",
    "euler_stability",
    "fisher_memory",
    "gradient_bound",
    "gradient_flow",
    "gradient_preservation",
    "henrici_number",
    "inversion_error",
    "jacobian_of",
    "jacobian_product",
    "long_term_gradient",
    "lyapunov_exponents",
    "mean_field",
    "measure",
    "normality",
    "phase_diagram",
    "phase_volume",
    "recall",
    "relations",
    "retention",
    "schur_structure",
    "simulate_depth",
    "sparse_attention_bound",
    "sparse_attention_gradient",
    "spectrum",
    "state_bound",
    "step_drift",
    "step_jacobians",
    "uniform_attention_gradient",
]
