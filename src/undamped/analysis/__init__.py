"""Instruments: they measure how far signals and gradients travel in a model, in any nn.Module.

They never train. Each returns a small record that draws itself by `.plot()` or `.save_figure(path)`
and has `.to_dict()` for JSON. `undamped diagnose` uses the registered instruments.
"""

from undamped._base.lazy import lazy_names

# Not on demand, since their modules have the same names.
from undamped.analysis.attention import attention as attention
from undamped.analysis.cost import cost as cost
from undamped.analysis.fisher_memory import fisher_memory as fisher_memory
from undamped.analysis.gradient_flow import gradient_flow as gradient_flow
from undamped.analysis.gradient_preservation import gradient_preservation as gradient_preservation
from undamped.analysis.mean_field import mean_field as mean_field
from undamped.analysis.normality import normality as normality
from undamped.analysis.recall import recall as recall
from undamped.analysis.retention import retention as retention

_BY_MODULE = {
    "attention": ("Attention", "StepDrift", "attention", "attention_of", "step_drift"),
    "attention_theory": (
        "attention_exponent",
        "sparse_attention_bound",
        "sparse_attention_gradient",
        "uniform_attention_gradient",
    ),
    "core": ("InapplicableError", "Judgement", "Probe", "Result"),
    "core.statistics": ("Trend",),
    "cost": ("Cost", "cost", "count_flops", "count_parameters"),
    "examination": ("Diagnosis", "Finding", "doctor"),
    "fisher_memory": ("FisherMemory", "fisher_memory"),
    "gradient_flow": ("GradientFlow", "depth_flow", "gradient_flow"),
    "gradient_preservation": ("GradientPreservation", "gradient_preservation"),
    "jacobian": (
        "JacobianProduct",
        "Lyapunov",
        "Spectrum",
        "jacobian_of",
        "jacobian_product",
        "lyapunov_exponents",
        "spectrum",
        "step_jacobians",
    ),
    "mean_field": (
        "DepthSimulation",
        "MeanField",
        "PhaseDiagram",
        "critical_weight_scale",
        "mean_field",
        "phase_diagram",
        "simulate_depth",
    ),
    "normality": ("Normality", "SchurStructure", "henrici_number", "normality", "schur_structure"),
    "ode_gradients": ("GradientComparison", "compare_field_gradients", "compare_gradients"),
    "oscillators": (
        "EffectiveSteps",
        "Energy",
        "InversionError",
        "PhaseVolume",
        "effective_steps",
        "energy_drift",
        "inversion_error",
        "phase_volume",
    ),
    "promises": ("Measurement", "measure"),
    "recall": ("Recall", "recall"),
    "relation_map": ("RelationMap", "relations"),
    "retention": ("Retention", "retention"),
    "stiffness": (
        "EulerStability",
        "adjoint_decay",
        "compare_stiffness",
        "eigenvalue_pairs",
        "euler_stability",
    ),
    "unicornn": ("gradient_bound", "long_term_gradient", "state_bound"),
}
_NAMES = {
    name: f"undamped.analysis.{module}" for module in _BY_MODULE for name in _BY_MODULE[module]
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
