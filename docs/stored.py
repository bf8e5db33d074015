"""Outputs of programs that run while the site is built, stored until program or library change."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".cache" / "docs"
Output = tuple[str, dict[str, bytes]]
"""A page in Markdown, and its figures by name."""


@cache
def library_hash() -> str:
    """Return the hash of all source files of the library."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stored(program: Path, run: Callable[[Path], Output]) -> Output:
    """Return the output of a program, from the last build if nothing has changed since."""
    key = hashlib.sha256(program.read_bytes() + library_hash().encode()).hexdigest()
    file = FOLDER / f"{program.stem}-{key[:16]}.json"
    if file.is_file():
        text, figures = json.loads(file.read_text(encoding="utf-8"))
        return text, {name: base64.b64decode(data) for name, data in figures.items()}
    text, figures = run(program)
    encoded = {name: base64.b64encode(data).decode() for name, data in figures.items()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob(f"{program.stem}-*.json"):
        old.unlink()
    file.write_text(json.dumps([text, encoded]), encoding="utf-8")
    return text, figures
