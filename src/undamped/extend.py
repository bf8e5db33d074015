"""What a third-party model, task, solver, instrument, paper, benchmark or reader is made of.

    from undamped.extend import Cell, Recurrent, register_model

The names of tasks, experiments, benchmarks and readers need the workbench (`undamped[lab]`).
"""

from undamped._base.lazy import lazy_names
from undamped._base.registry import benchmarks, experiments, instruments, models, tasks

register_model = models.register
register_task = tasks.register
register_instrument = instruments.register
register_experiment = experiments.register
register_benchmark = benchmarks.register

_NAMES = {
    "Batch": "undamped._base.contract",
    "Cell": "undamped.nn.bases.cell",
    "Chance": "undamped.lab.tasks.task",
    "Fraction": "undamped._base.options",
    "GeneratedTask": "undamped.lab.tasks.task",
    "InapplicableError": "undamped.analysis.core.probe",
    "Kind": "undamped._base.promises",
    "Layout": "undamped.analysis.core.figures",
    "MemoryPlan": "undamped.nn.bases.cell",
    "NonNegativeFloat": "undamped._base.options",
    "PositiveFloat": "undamped._base.options",
    "PositiveInt": "undamped._base.options",
    "Probe": "undamped.analysis.core.probe",
    "Promise": "undamped._base.promises",
    "Recipe": "undamped.lab.training.recipes",
    "Recurrent": "undamped.nn.recurrent",
    "Result": "undamped.analysis.core.result",
    "RungeKutta": "undamped.ode.methods.explicit.runge_kutta",
    "SeriesSet": "undamped.lab.data.recordings.series",
    "Solver": "undamped.ode.methods.solver",
    "State": "undamped.nn.bases.cell",
    "Tableau": "undamped.ode.methods.stages",
    "Task": "undamped.lab.tasks.task",
    "TaskModel": "undamped.models.task_model",
    "TaskShape": "undamped._base.contract",
    "load_file": "undamped._base.plugins",
    "reads": "undamped.lab.data.recordings.reader",
    "register_recipe": "undamped.lab.training.recipes",
    "register_solver": "undamped.ode.methods.solver",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
