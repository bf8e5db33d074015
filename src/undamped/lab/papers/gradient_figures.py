"""Two figures of trained networks: gradient norms over time, and learned time steps.

`denoise` trains several models on the denoise task and measures ‖∂L/∂h_t‖ with L the loss on the
ten recalled symbols, as the thesis's figure 2 (left) of chapter 4 does. `steps` trains a UnICORNN
and shows the effective time step of each neuron, as figure 5 of its paper does. Each writes its
numbers as JSON and its figure as an HTML page.

    python -m undamped.lab.papers.gradient_figures denoise --delay 100 --steps 600
    python -m undamped.lab.papers.gradient_figures steps --steps 600
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def denoise(
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "rnn,lstm,unicornn",
    delay: Annotated[int, typer.Option(help="Delay of the task.")] = 100,
    steps: Annotated[int, typer.Option(help="Batches to train for.")] = 600,
    hidden: Annotated[int, typer.Option(help="Hidden units.")] = 64,
    batch: Annotated[int, typer.Option(help="Sequences per batch.")] = 32,
    out: Annotated[Path, typer.Option(help="Folder for numbers and figure.")] = Path(),
    runs: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
) -> None:
    """Train on denoise, then measure the gradient of the recall loss over time."""
    from undamped.analysis.core.figures import Layout, add_line, new_figure
    from undamped.lab.training import fit

    layout = Layout(
        f"Gradient norm after training on denoise (delay {delay})",
        "step t",
        "‖∂L/∂h(t)‖ relative to its end",
        "L is the loss on the ten symbols of the last ten steps.",
        log_y=True,
    )
    figure = new_figure(layout)
    results = {}
    for index, model in enumerate(models.split(",")):
        run = fit(
            model,
            "denoise",
            model_options={"hidden_size": hidden},
            task_options={"delay": delay},
            train={"steps": steps, "batch_size": batch, "validate_every": max(1, steps // 5)},
            out=runs,
            progress=False,
        )
        flow = recall_gradient(run)
        results[model] = {
            "gradient_flow": flow.to_dict(),
            "result": run.result,
            "settings": {key: run.settings[key] for key in ("task", "model", "train", "seed")},
        }
        add_line(figure, flow.steps, flow.norms / flow.norms[-1], model, index)
    write(out, "gradient-denoise", figure, results)


def recall_gradient(run: Any) -> Any:
    """Measure gradient flow on the task of a run with the loss of its last ten steps alone.

    Args:
        run: A finished run on copy or denoise.
    """
    from torch.nn.functional import cross_entropy

    from undamped.analysis import gradient_flow
    from undamped.lab.tasks.copying import RECALLED

    batch = run.task().batch("test", 0, 16)

    def loss(answer: Any) -> Any:
        return cross_entropy(answer[-RECALLED:].flatten(0, 1), batch.targets[-RECALLED:].flatten())

    return gradient_flow(run.model(), batch.inputs, loss=loss, name=run.settings["model"]["name"])


@app.command()
def steps(
    task: Annotated[str, typer.Option(help="The task to train on.")] = "digits",
    steps: Annotated[int, typer.Option(help="Batches to train for.")] = 600,
    hidden: Annotated[int, typer.Option(help="Oscillators per layer.")] = 64,
    layers: Annotated[int, typer.Option(help="Layers.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for numbers and figure.")] = Path(),
    runs: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
) -> None:
    """Train a UnICORNN, then show the learned time step of each neuron."""
    from undamped.analysis import effective_steps
    from undamped.lab.training import fit

    run = fit(
        "unicornn",
        task,
        model_options={"hidden_size": hidden, "num_layers": layers},
        train={"steps": steps, "validate_every": max(1, steps // 5)},
        out=runs,
        progress=False,
    )
    learned = effective_steps(run.model())
    results = {
        "effective_steps": learned.to_dict(),
        "spread": learned.spread,
        "result": run.result,
        "settings": {key: run.settings[key] for key in ("task", "model", "train", "seed")},
    }
    write(out, f"effective-steps-{task}", learned.plot(), results)


def write(out: Path, name: str, figure: Any, results: dict[str, Any]) -> None:
    """Write the numbers and the figure, each to a file.

    Args:
        out: The folder.
        name: Name of the files, without ending.
        figure: A plotly figure.
        results: Measured numbers and text.
    """
    from undamped.lab.files import write_json, write_text

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{name}.json", {"figure": figure.to_plotly_json(), **results})
    write_text(out / f"{name}.html", figure.to_html(include_plotlyjs=True))


if __name__ == "__main__":
    app()
