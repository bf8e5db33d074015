"""The notebooks of examples/, executed while the site is built and shown as pages.

A notebook is executed again if it or the library has changed (see stored.py).

Markdown and pictures come out, nothing of Jupyter's own scripts, so that a page needs no server
but the one it lies on.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter

from stored import stored

EXAMPLES = Path(__file__).parent.parent / "examples"
SLOWEST_CELL = 1800  # seconds; a busy machine is slow, a cell that hangs is found all the same


def execute(path: Path) -> tuple[str, dict[str, bytes]]:
    """Run a notebook; return its page in Markdown and its pictures by name."""
    notebook = nbformat.read(path, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3")
    if os.name != "nt":  # sockets in a folder of ours rather than a port that others can read
        manager.transport = "ipc"
        manager.ip = str(Path(tempfile.mkdtemp()) / "kernel")
    # The shell commands of a notebook find the program that belongs to this Python.
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    client = NotebookClient(
        notebook, km=manager, timeout=SLOWEST_CELL, startup_timeout=SLOWEST_CELL
    )
    try:
        client.execute(cwd=str(EXAMPLES), env={**os.environ, "PATH": search})
    except CellExecutionError as error:
        raise PluginError(f"{path.name} does not run: {error}") from error
    body, resources = MarkdownExporter().from_notebook_node(
        notebook, resources={"output_files_dir": f"{path.stem}-pictures"}
    )
    return body, {name.replace("\\", "/"): data for name, data in resources["outputs"].items()}


def on_files(files: Files, config) -> Files:
    """Add a page for every notebook, with its pictures beside it."""
    for path in sorted(EXAMPLES.rglob("[!.]*.ipynb")):
        body, pictures = stored(path, execute)
        folder = Path("examples") / path.parent.relative_to(EXAMPLES)
        # Links in a notebook are those of the repository: docs/benchmark.md, 2-gates.ipynb.
        body = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", body)
        body = re.sub(r"(\]\([\w/-]+)\.ipynb\)", r"\1.md)", body)
        files.append(File.generated(config, f"{folder}/{path.stem}.md", content=body))
        for picture, data in pictures.items():
            files.append(File.generated(config, f"{folder}/{picture}", content=data))
    return files
