"""Pages made while the site is built: registries, zoo, reference, changelog and history.

A block of a page that begins with ```equation is shown as mathematics.
"""

import json
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

import mathematics
import play
import reference
from undamped._base.registry import Registry
from undamped.lab.catalogue import REGISTRIES, describe_entry, summary
from undamped.lab.cli.verbs.catalogue import FAMILIES, family_of
from undamped.lab.cli.verbs.zoo import card, listing
from undamped.lab.zoo import zoo_index

DOCS = Path(__file__).parent
HISTORY = """Each release has a file `docs/history/VERSION.json` with these numbers; add one
before a release.
Conditions are on the linked pages."""
ZOO = """# Zoo

{count} trained models come with the library, in {size} kB. Each was trained by the command on its
card, in at most two minutes of one core, with one seed. A name stands for a run folder in every
command that takes one, and results are written to the current folder:

```
undamped zoo                                # the table below
undamped diagnose flags-latch               # or predict, stream, export, report, animate
undamped train flags latch --from-zoo       # a copy of the run folder in runs/
undamped zoo check                          # measures all scores again, in a few minutes
```

```python
import undamped

run = undamped.load("flags-latch")
model, task = run.model(), run.task()       # also run.settings, run.metrics(), run.result
```

Files are safetensors, JSON and CSV, and are compared with their SHA-256 before they are read. The
score is that of the test split, or of the longest test sequences; weights were selected on
validation data.

{table}

{cards}
"""


def page(name: str, registry: Registry) -> str:
    """Write the page of one member in Markdown."""
    about = describe_entry(name, registry)
    said = about["summary"].splitlines()
    lines = [f"# {name}", ""]
    if about.get("question"):
        lines += [f"*{about['question']}*", ""]
    lines += [said[0], "", *said[1:], ""]
    for heading in ("equation", "symbols", "promise"):
        if about.get(heading):
            body = about[heading]
            text = [mathematics.equation(body)] if heading == "equation" else [body]
            lines += [f"## {heading.capitalize()}", "", *text, ""]
    if about["promises"]:
        lines += ["Measured by the tests:", ""]
        lines += [f"- **{p['kind']}**: {p['claim']}" for p in about["promises"]]
        lines += [""]
    lines += ["## Options", "", "| name | default | accepts | about |", "|---|---|---|---|"]
    for option in about["options"]:
        cells = (option["name"], option["default"], option["accepts"], option["about"])
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    lines.append("")
    if about.get("example"):
        lines += ["## Example", "", "```pycon", about["example"], "```", ""]
    if about.get("reference"):
        lines += ["## Reference", "", about["reference"], ""]
    return "\n".join(lines)


def index(title: str, registry: Registry) -> str:
    """Write the list of all members of a registry."""
    groups: dict[str, list[str]] = {}
    for name in registry:
        line = f"- [{name}]({name}.md): {summary(describe_entry(name, registry))}"
        groups.setdefault(family_of(name) if title == "Models" else "", []).append(line)
    lines = [f"# {title}", ""]
    if title == "Models":
        lines += ["[Which model should I use?](../choose.md)", ""]
    for family in sorted(groups, key=lambda name: [*FAMILIES, name].index(name)):
        heading = [f"## {family[:1].upper()}{family[1:]}", ""] if family else []
        lines += [*heading, *groups[family], ""]
    return "\n".join(lines)


def history() -> str:
    """Write the page of measurements by release."""
    releases = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((DOCS / "history").glob("*.json"))
    ]
    measured = {
        release["version"]: {row["name"]: row for row in release["measurements"]}
        for release in releases
    }
    names = dict.fromkeys(name for rows in measured.values() for name in rows)
    lines = ["# Measured over releases", "", HISTORY, ""]
    lines += [f"| | unit | better | {' | '.join(measured)} | command |"]
    lines += ["|---|---|---|" + "---:|" * len(measured) + "---|"]
    for name in names:
        row = next(rows[name] for rows in reversed(measured.values()) if name in rows)
        values = [f"{rows[name]['value']:g}" if name in rows else "" for rows in measured.values()]
        about = f"[{name}]({row['page']}) | {row['unit']} | {row['better']}"
        lines.append(f"| {about} | {' | '.join(values)} | `{row['command']}` |")
    lines += ["", *(f"{release['version']}: {release['machine']}." for release in releases), ""]
    return "\n".join(lines)


def changelog() -> str:
    """Return the changelog with links as they are from the site."""
    text = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def zoo() -> str:
    """Write the page of the zoo: a table, and a card for every entry."""
    entries = zoo_index()
    size = sum(entry["bytes"] for entry in entries.values()) // 1000
    cards = "\n\n".join(card(name, entry) for name, entry in entries.items())
    table = listing(entries).markdown()
    return ZOO.format(count=len(entries), size=size, table=table, cards=cards)


def on_files(files: Files, config) -> Files:
    """Add the generated pages."""
    for folder, registry in REGISTRIES.items():
        if not len(registry):
            continue
        if files.get_file_from_path(f"{folder}.md") is not None:
            folder += "-by-name"  # a page that people wrote has the plain name
        pages = {f"{folder}/index.md": index(folder.capitalize().replace("-", " "), registry)}
        pages |= {f"{folder}/{name}.md": page(name, registry) for name in registry}
        for path, content in pages.items():
            files.append(File.generated(config, path, content=content))
    generated = {**reference.pages(), "zoo.md": zoo(), "history.md": history()}
    generated |= {"changelog.md": changelog(), "play/flags.html": play.page()}
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Show equations of hand-written pages as mathematics."""
    return re.sub(
        r"^```equation\n(.*?)\n```$",
        lambda found: mathematics.equation(found[1]),
        markdown,
        flags=re.M | re.S,
    )
