"""The gallery: the programs of examples/gallery with what they print and draw.

A program begins with a docstring, its title and a sentence, and leaves a matplotlib `figure` or a
`result` of an instrument, which has `save_figure`.
"""

import ast
import contextlib
import io
import runpy
import tempfile
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from stored import Output, stored

PROGRAMS = Path(__file__).parent.parent / "examples" / "gallery"
HEAD = """# Gallery

Short programs, executed while this documentation was built. Each runs in seconds; copy it and
change it. They are the files of `examples/gallery`.

"""


def parts(program: Path) -> tuple[str, str, str]:
    """Return title, description and code of a program."""
    source = program.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, about = docstring.partition("\n\n")
    return title, " ".join(about.split()), source.split('"""', 2)[2].strip()


def execute(program: Path) -> Output:
    """Run a program; return its page in Markdown and its figure."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            names = runpy.run_path(str(program))
    except Exception as error:
        raise PluginError(f"{program.name} does not run: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        if "figure" in names:
            names["figure"].savefig(path, dpi=110, bbox_inches="tight")
        else:
            names["result"].save_figure(path)
        figure = path.read_bytes()
    pyplot.close("all")
    title, about, code = parts(program)
    output = printed.getvalue().strip()
    block = f"\n```text\n{output}\n```\n" if output else ""
    picture = f"{program.stem}.png"
    page = f"# {title}\n\n{about}\n\n```python\n{code}\n```\n{block}\n![{title}]({picture})\n"
    return page, {picture: figure}


def on_files(files: Files, config) -> Files:
    """Add a page for every program, and an overview with all figures."""
    cards = []
    for program in sorted(PROGRAMS.glob("*.py"), key=lambda path: parts(path)[0]):
        page, figures = stored(program, execute)
        files.append(File.generated(config, f"gallery/{program.stem}.md", content=page))
        for name, data in figures.items():
            files.append(File.generated(config, f"gallery/{name}", content=data))
        title = parts(program)[0]
        cards.append(f"-   [![]({program.stem}.png){{ width=280 }}<br>{title}]({program.stem}.md)")
    text = f'{HEAD}<div class="gallery" markdown>\n\n' + "\n".join(cards) + "\n\n</div>\n"
    files.append(File.generated(config, "gallery/index.md", content=text))
    return files
