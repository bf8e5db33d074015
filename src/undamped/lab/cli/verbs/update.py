"""`undamped update RUN new.csv`: a trained model learns from further recordings."""

from __future__ import annotations

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Update
from undamped.lab.cli.predict_recordings import read_for
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.training.run import Run
from undamped.lab.training.updating import Updated, store_statistics, update


def update_run(options: Update) -> None:
    """Print the new version of the run and what changed in the data."""
    run = Run.open(options.run)
    preparation = run.preparation()
    if preparation is None:
        raise OptionError(f"{run.path} is not a run on recordings, and only these can be updated.")
    if options.data is None:
        samples = store_statistics(run)
        if options.as_json:
            print_json({"run": str(run.path), "samples": samples})
        else:
            print_lines(
                f"{run.path} has the normal equations of its {samples:,} series now: updates need "
                "its training recordings no more."
            )
        return
    series_set = read_for(run, preparation, options.data, needs_target=True)
    result = update(run, series_set, lose=options.lose)
    if options.as_json:
        names = ("before", "after")
        scores = None if result.scores is None else dict(zip(names, result.scores, strict=True))
        content = {"run": str(result.run.path), "updated_from": str(run.path)}
        print_json(
            {**content, "series": result.series, "old_validation": scores, "drift": result.drift}
        )
        return
    print_lines(*_sentences(run, result))


def _sentences(run: Run, result: Updated) -> list[str]:
    lines = [
        f"{result.run.path} was updated with {result.series:,} further series; {run.path} is "
        "unchanged."
    ]
    if result.scores is not None:
        before, after = result.scores
        lines.append(f"Score on the old validation split: {before:.4g} before, {after:.4g} after.")
    changed = result.drift["changed"]
    lines.append("What changed in the data:" if changed else "The data have not changed.")
    return [*lines, *(f"  {sentence}" for sentence in changed)]
