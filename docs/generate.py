"""Pages made from the registry while the site is built: one per member."""

from mkdocs.structure.files import File, Files

from undamped.describe import REGISTRIES, describe_member
from undamped.registry import Registry


def page(name: str, registry: Registry) -> str:
    """Write the page of one member in Markdown."""
    about = describe_member(name, registry)
    summary = about["summary"].splitlines()
    lines = [f"# {name}", "", summary[0], "", *summary[1:], ""]
    for heading in ("equation", "symbols", "promise"):
        if about.get(heading):
            body = about[heading]
            text = ["```text", body, "```"] if heading == "equation" else [body]
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
    lines = [f"# {title}", ""]
    for name in registry:
        first = describe_member(name, registry)["summary"].splitlines()[0]
        lines.append(f"- [{name}]({name}.md): {first}")
    return "\n".join([*lines, ""])


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
    return files
