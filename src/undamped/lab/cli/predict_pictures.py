"""Answers of a model of pictures to sequences in a folder or a file."""

from __future__ import annotations

from pathlib import Path

from undamped.lab.training.run import Run
from undamped.models.relational.base import RelationalModel

AT_ONCE = 256


def answer_pictures(run: Run, model: RelationalModel, path: Path, as_json: bool) -> None:
    """Print the class of every sequence, and how sure the model is.

    Args:
        run: The run.
        model: Its model.
        path: folder/sequence/01.png, 02.png, …, or an .npz file with `pictures`.
        as_json: Whether to print JSON for a script.
    """
    import numpy as np
    import torch

    from undamped._base.contract import Batch
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.pictures.sequences import read_picture_sequences

    found = read_picture_sequences(path, labelled=False)
    pictures = torch.from_numpy(np.ascontiguousarray(found.pictures))
    rows = []
    with torch.no_grad():
        for start in range(0, len(found), AT_ONCE):
            numbers = torch.from_numpy(found.sequences[start : start + AT_ONCE]).T
            rows += torch.softmax(model(Batch(numbers, distinct=pictures)), -1).tolist()
    classes = run.settings.get("answer_names") or list(map(str, range(len(rows[0]))))
    answers = [
        {
            "sequence": name,
            "answer": classes[max(range(len(row)), key=row.__getitem__)],
            "probabilities": dict(zip(classes, row, strict=True)),
        }
        for name, row in zip(found.names, rows, strict=True)
    ]
    if as_json:
        print_json(answers)
        return
    for one, row in zip(answers, rows, strict=True):
        line = f"{one['sequence']}: {one['answer']}  (probability {max(row):.2f})"
        console().print(line, soft_wrap=True, markup=False)
