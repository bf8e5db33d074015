"""The experiments behind the pictures, in a size that takes seconds."""

import json

from typer.testing import CliRunner

from undamped.lab.papers.gradient_figures import app


def test_both_experiments_write_numbers_and_picture(tmp_path):
    runner = CliRunner()
    common = ["--steps", "2", "--hidden", "4", "--out", str(tmp_path), "--runs", str(tmp_path)]
    words = ["denoise", "--models", "lstm,unicornn", "--delay", "5", "--batch", "2", *common]
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "gradient-denoise.json").read_text())
    assert len(written["lstm"]["gradient_flow"]["norms"]) == 25
    assert len(written["figure"]["data"]) == 2
    assert "plotly" in (tmp_path / "gradient-denoise.html").read_text().lower()
    done = runner.invoke(app, ["steps", "--task", "adding", "--layers", "2", *common])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "effective-steps-adding.json").read_text())
    assert len(written["effective_steps"]["steps"]) == 2
