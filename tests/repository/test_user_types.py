"""Small programs of users, as a type checker sees them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PROGRAMS = {
    "a network in place of an LSTM": """
        output, state = undamped.nn.UnICORNN(3, 8, num_layers=2, dt=0.2)(torch.randn(5, 2, 3))
        assert_type(output, Tensor)
    """,
    "a stream of samples": """
        net = undamped.nn.GRU(3, 8)
        output, state = net.step(torch.randn(2, 3))
        assert_type(output, Tensor)
        assert_type(net.forward(torch.randn(5, 2, 3))[1], "Tensor | tuple[Tensor, ...]")
        assert_type(net.stream().push(torch.randn(1, 3)), Tensor)
    """,
    "a differential equation": """
        t, y = torch.linspace(0, 1, 5), torch.ones(2)
        assert_type(undamped.odeint(lambda t, y: -y, y, t), Tensor)
        assert_type(undamped.odeint(lambda t, y: y, (y, y), t)[0], Tensor)
        when, _ = undamped.odeint(lambda t, y: -y, y, t, event_fn=lambda t, y: y[0] - 0.5)
        assert_type(when, Tensor)
    """,
    "a diagnosis": """
        module = torch.nn.LSTM(3, 8, batch_first=True)
        report = undamped.diagnose(module, torch.randn(8, 100, 3), batch_first=True)
        assert_type(report.verdict, str)
        flow = undamped.analysis.gradient_flow(module, torch.randn(8, 100, 3))
        assert_type(flow.sentence, str)
        assert_type(undamped.build("unicornn", input_size=3, hidden_size=8), torch.nn.Module)
    """,
    "an estimator, and a mistake": """
        model = undamped.SequenceClassifier("bank").fit([[0.0, 1.0]] * 4, [0, 1, 0, 1])
        assert_type(model, undamped.SequenceClassifier)
        undamped.nn.LSTM(3, "8")  # pyright: ignore[reportArgumentType]
    """,
}
HEADER = """\
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnusedVariable=false, reportUnusedImport=false
from typing import assert_type
import torch
from torch import Tensor
import undamped
"""


@pytest.mark.slow
@pytest.mark.process
def test_programs_of_users_have_types(tmp_path):
    for index, program in enumerate(PROGRAMS.values()):
        lines = "\n".join(line.strip() for line in program.splitlines())
        (tmp_path / f"program_{index}.py").write_text(HEADER + lines)
    settings = {"include": ["."], "extraPaths": [str(SOURCE)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = ["--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "pyright", *words], capture_output=True, text=True)
    answer = json.loads(done.stdout)
    problems = [
        (list(PROGRAMS)[int(Path(p["file"]).stem[-1])], p["range"]["start"]["line"], p["message"])
        for p in answer["generalDiagnostics"]
    ]
    assert not problems
    assert answer["summary"]["filesAnalyzed"] == len(PROGRAMS)
