"""The benchmark of `accelerate` runs and reports; how fast is not asked here."""

import json

from undamped.lab.benchmarks import accelerate


def test_a_quick_run_reports_every_shape():
    lines = []
    result = accelerate.run(
        kinds="nn.GRU,LayerNormLSTM", rounds=1, quick=True, progress=lines.append
    )
    data = json.loads(json.dumps(result.to_dict()))
    counts = dict.fromkeys(("padded", "packed", "step"), 0)
    for record in data["records"]:
        counts[record["what"]] += 1
        assert min(record["training"], record["inference"], record["milliseconds"]) > 0
    assert counts == {"padded": 4, "packed": 1, "step": 3} and len(lines) == 9
    assert all(min(record["limits"]) > 0 for record in data["records"])
    (packed,) = (record for record in data["records"] if record["what"] == "packed")
    assert min(packed["own_padded"]) > 0
    text = result.markdown()
    assert "nn.GRU" in text and "products alone" in text and "LayerNormLSTM" in text


def test_the_grid_spans_the_shapes_of_its_documentation():
    shapes = list(accelerate.shapes())
    assert {s.steps for s in shapes} == {16, 100, 1000, 4000}
    assert {s.batch for s in shapes} == {1, 8, 32, 128, 256}
    assert {s.units for s in shapes} == {16, 64, 128, 256, 512}
