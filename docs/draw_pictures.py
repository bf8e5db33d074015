"""Draw the pictures of the documentation: plotly's figures as SVG files, in chromium.

    python docs/draw_pictures.py theory --out docs/images
    python docs/draw_pictures.py depth --out docs/images
    python docs/draw_pictures.py memory --out docs/images
    python docs/draw_pictures.py relations --out docs/images
    python docs/draw_pictures.py figure gradient-denoise.json --out docs/images

`theory`, `depth`, `memory` and `relations` compute their figures anew, in seconds; the last ones
are PNG files. `figure` takes the JSON file that `python -m undamped.lab.papers.gradient_figures`
wrote.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

app = typer.Typer(add_completion=False, help=__doc__)
Out = Annotated[Path, typer.Option(help="Folder for the pictures.")]
WIDTH, HEIGHT = 760, 440


@app.command()
def theory(out: Out = Path("docs/images")) -> None:
    """Fisher memory curves, transients and the phase diagram."""
    draw({"fisher-memory": fisher(), "transients": transients(), "phase-diagram": phases()}, out)


@app.command()
def depth(out: Out = Path("docs/images")) -> None:
    """Stiffness and vanishing adjoints of first- and second-order neural ODEs."""
    draw({"stiffness-damping": stiffnesses(), "adjoint-decay": adjoints()}, out)


@app.command()
def memory(out: Out = Path("docs/images")) -> None:
    """Gradients under uniform attention beside the bound of the thesis."""
    draw({"uniform-attention": uniform_attention()}, out)


@app.command()
def relations(out: Out = Path("docs/images")) -> None:
    """Trials of the tasks about relations, and what CoRelNet sees of three of them."""
    out.mkdir(parents=True, exist_ok=True)
    trials().savefig(out / "relation-trials.png", dpi=110)
    relation_matrices().savefig(out / "relation-matrix.png", dpi=110)


@app.command()
def figure(path: Path, out: Out = Path("docs/images")) -> None:
    """A figure from a JSON file."""
    draw({path.stem: json.loads(path.read_text(encoding="utf-8"))["figure"]}, out)


def schur_form(alpha: float, beta: float, d: float, n: int = 100) -> np.ndarray:
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag == 0, d, np.where(lag == 1, alpha, np.where(lag > 1, beta, 0.0)))


def fisher() -> Any:
    from undamped.analysis import fisher_memory
    from undamped.analysis.core.figures import Layout, add_line, new_figure

    layout = Layout(
        "Fisher memory of 100 linear units",
        "delay k [steps]",
        "Fisher information J(k)",
        "A delay line forgets everything after 100 steps; a diagonal d lets it reach beyond.",
    )
    figure = new_figure(layout)
    cases = [(1.0, 0.0, 0.0), (1.05, 0.0, 0.0), (1.0, 0.0, 0.2), (1.05, 0.0, 0.2)]
    for index, (alpha, beta, d) in enumerate(cases):
        curve = fisher_memory(schur_form(alpha, beta, d), np.eye(100)[0], steps=160).curve
        add_line(figure, range(160), curve, f"α = {alpha:g}, d = {d:g}", index)
    return figure.update_yaxes(range=[0, 0.5]).to_plotly_json()


def transients() -> Any:
    from undamped.analysis import normality
    from undamped.analysis.core.figures import Layout, add_line, new_figure

    layout = Layout(
        "Transients of non-normal matrices (100 units)",
        "steps k",
        "‖Θᵏ‖",
        "All eigenvalues are zero, yet states grow for as long as the chain is.",
        log_y=True,
    )
    figure = new_figure(layout)
    for index, (alpha, beta) in enumerate([(0.95, 0.0), (1.05, 0.0), (0.95, 0.005), (1.05, 0.005)]):
        growth = normality(schur_form(alpha, beta, 0.0), steps=110).growth
        shown = growth > 0
        add_line(
            figure, np.flatnonzero(shown), growth[shown], f"α = {alpha:g}, β = {beta:g}", index
        )
    return figure.to_plotly_json()


def phases() -> Any:
    from undamped.analysis import phase_diagram

    return phase_diagram("tanh").plot().to_plotly_json()


def uniform_attention() -> Any:
    from undamped.analysis import attention_exponent, uniform_attention_gradient
    from undamped.analysis.core.figures import Layout, add_line, new_figure

    layout = Layout(
        "Gradient under uniform attention, linear recurrence",
        "length T",
        "|ds(T)/dh(1)|",
        "1/T is no bound: imaginary λ fall below it. With the half nothing rises.",
        log_x=True,
        log_y=True,
    )
    figure = new_figure(layout)
    at = np.unique(np.logspace(0, 12, 49, base=2).astype(int))
    for index, (eigenvalue, mix) in enumerate(
        [(0.6, "sum"), (0.3, "sum"), (0.9j, "sum"), (0.9, "half"), (0.9j, "half")]
    ):
        sizes = np.abs(uniform_attention_gradient(eigenvalue, 4096, mix=mix))[at - 1]
        power = attention_exponent(eigenvalue, mix=mix)
        form = "h + c" if mix == "sum" else "(h + c)/2"
        shown = f"{eigenvalue.imag:g}i" if isinstance(eigenvalue, complex) else f"{eigenvalue:g}"
        name = f"λ = {shown}, {form}: T^{power:.2f}"
        add_line(figure, at, sizes, name, index)
    add_line(figure, at, 1 / at, "1/T", 6)
    return figure.to_plotly_json()


def stiffnesses() -> Any:
    import torch

    from undamped.analysis import compare_stiffness

    matrix = -torch.diag(torch.tensor([1.0, 3.0, 10.0, 50.0], dtype=torch.float64))
    return compare_stiffness(matrix, [k / 20 for k in range(161)]).plot().to_plotly_json()


def adjoints() -> Any:
    import torch

    from undamped.analysis import adjoint_decay

    class Contracting(torch.nn.Module):
        def forward(self, t: Any, h: torch.Tensor) -> torch.Tensor:
            return -torch.tanh(h)

    start = torch.full((4, 3), 0.1, dtype=torch.float64)
    times = [0.5 * k for k in range(1, 41)]
    return adjoint_decay(Contracting(), start, times).plot().to_plotly_json()


def trials() -> Any:
    from matplotlib.figure import Figure

    import undamped
    from undamped.lab.report.trials import mosaic, some_trials

    shown: list[tuple[str, dict[str, Any]]] = [
        ("same-different", {}),
        ("rmts", {}),
        ("rmts", {"colours": "joint"}),
        ("rmts-3", {}),
        ("distribution-of-n", {}),
        ("identity-rules", {}),
        ("identity-rules-4", {}),
        ("comparison", {}),
        *(("relational-games", {"game": game}) for game in ("between", "xoccurs", "row-matching")),
        ("relational-games", {"game": "left-of"}),
    ]
    figure = Figure(figsize=(10, 9), layout="constrained")
    for axis, (name, options) in zip(figure.subplots(3, 4).ravel(), shown, strict=True):
        (trial,) = some_trials(undamped.lab.tasks.build(name, **options), 1)
        axis.imshow(mosaic(trial), interpolation="nearest")
        axis.set(xticks=[], yticks=[], frame_on=False, xlabel=trial.answer)
        said = [f"{key}={value}" for key, value in options.items()]
        axis.set_title("\n".join([name, *said]), fontsize=10)
    return figure


def relation_matrices() -> Any:
    import torch
    from matplotlib.figure import Figure

    import undamped
    from undamped.analysis.relation_map import framed

    cases = [
        ("rmts", {}, "as it is"),
        ("rmts", {"colours": "joint"}, "recoloured"),
        ("rmts", {"colours": "joint"}, "recoloured, temperature 30"),
    ]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axis, (name, options, title) in zip(figure.subplots(1, 3), cases, strict=True):
        task = undamped.lab.tasks.build(name, **options)
        torch.manual_seed(0)
        temperature = 30.0 if "temperature" in title else 1.0
        model = undamped.models.CoRelNet(task.task_shape, encoder="frozen", temperature=temperature)
        seen = undamped.analysis.relations(model, task.batch("test", 0, 96), trials=1)
        shown = framed(seen.matrices[0], seen.pictures[0])
        axis.imshow(shown, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        axis.set(xticks=[], yticks=[], frame_on=False)
        axis.set_title(f"{name}, {title}", fontsize=10)
    return figure


def draw(figures: dict[str, Any], out: Path) -> None:
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs
    from plotly.utils import PlotlyJSONEncoder

    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_content("<div id=plot></div>")
        page.add_script_tag(content=get_plotlyjs())
        for name, figure in figures.items():
            data = json.loads(json.dumps(figure, cls=PlotlyJSONEncoder))
            url = page.evaluate(
                "([figure, width, height]) => Plotly.newPlot('plot', figure.data, figure.layout)"
                ".then(() => Plotly.toImage('plot', {format: 'svg', width, height}))",
                [data, WIDTH, HEIGHT],
            )
            picture = page.evaluate("url => decodeURIComponent(url.split(',')[1])", url)
            (out / f"{name}.svg").write_text(picture + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    app()
