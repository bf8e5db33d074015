"""The .ts format: every variant of its header, and ten thousand damaged files."""

import random

import numpy as np
import pytest

from undamped._base.errors import DataError
from undamped.lab.data.recordings.formats.ts import parse_ts, read_ts
from undamped.lab.data.recordings.formats.ucr import read_ucr, read_ucr_file

PLAIN = """# a comment
@problemName Example
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true up down
@data
1.0,2.0,?:4.0,NaN,6.0:up
-1,2:3,4:down
"""
STAMPED = """@problemName timestamped
@timestamps true
@univariate true
@classLabel true a b
@data
(0,1.5),(1,2.5),(4,?):a
(2,3),(3,4):b
"""
DATED = """@problemname dated
@timeStamps true
@targetlabel true
@data
(2020-01-01 00:00:00,1),(2020-01-01 00:01:30,2):(2020-01-01 00:01:30,7):12.5
"""
REGRESSION = "@problemName r\n@targetLabel true\n@data\n1,2,3:0.5\n4,5,6:-1e3\n"
UNLABELLED = "@problemName u\n@classLabel false\n@data\n1,2,3\n4,5,6\n"
EXAMPLES = (PLAIN, STAMPED, DATED, REGRESSION, UNLABELLED)


def parse(text):
    return parse_ts(text.encode().splitlines(keepends=True))


def test_plain():
    data = parse(PLAIN)
    assert [values.shape for values in data.series] == [(3, 2), (2, 2)]
    np.testing.assert_array_equal(data.series[0], [[1, 4], [2, np.nan], [np.nan, 6]])
    assert data.targets.tolist() == ["up", "down"] and data.times is None
    windows = parse(PLAIN.replace("\n", "\r\n"))
    np.testing.assert_array_equal(windows.series[1], data.series[1])
    assert windows.targets.tolist() == ["up", "down"]


def test_time_timestamps():
    data = parse(STAMPED)
    np.testing.assert_array_equal(data.times[0], [0, 1, 4])
    np.testing.assert_array_equal(data.series[0][:, 0], [1.5, 2.5, np.nan])
    dated = parse(DATED)
    assert np.diff(dated.times[0]).tolist() == [90.0]
    np.testing.assert_array_equal(dated.series[0], [[1, np.nan], [2, 7]])
    assert dated.targets.tolist() == [12.5]


def test_targets():
    assert parse(REGRESSION).targets.tolist() == [0.5, -1000.0]
    assert parse(UNLABELLED).targets is None


def test_labels_with_blanks_and_numbers():
    spaced = "@classLabel true fast walking slow\n@data\n1,2:fast walking\n1,3:slow walking\n"
    assert parse(spaced).targets.tolist() == ["fast walking", "slow walking"]
    assert parse("@classLabel true 1 2\n@data\n1,2:1.0\n3,4:2\n").targets.tolist() == ["1", "2"]


def test_channels_of_unequal_length():
    data = parse("@classLabel false\n@data\n1,2,3:4\n:5,6\n")
    np.testing.assert_array_equal(data.series[0], [[1, 4], [2, np.nan], [3, np.nan]])
    np.testing.assert_array_equal(data.series[1], [[np.nan, 5], [np.nan, 6]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "@data"),
        ("@data\n", "no series after @data"),
        ("hello\n", "must start with @"),
        ("@timeStamps perhaps\n@data\n1:2\n", "true or false"),
        ("@classLabel true a\n@data\n1,2:b\n", "is not in @classLabel"),
        ("@data\n1,x,3\n", "line 2: 'x' is not a number"),
        ("@data\n1,1e999\n", "too large"),
        ("@data\n1,2:3,4\n1,2\n", "1 channels, but 2 before"),
        ("@timeStamps true\n@data\n(0,1),(0,2)\n", "a timestamp occurs twice"),
        ("@timeStamps true\n@data\n(0,1),0,2)\n", "is not a list of pairs"),
        ("@timeStamps true\n@data\n(monday,1)\n", "neither number nor ISO date"),
        ("@classLabel true a b\n@data\na\n", "channel"),
        ("@data\n,\n:\n", "line 3"),
    ],
)
def test_one_sentence_for_what_is_wrong(text, message):
    with pytest.raises(DataError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_text(tmp_path):
    with pytest.raises(DataError, match="UTF-8"):
        parse_ts([b"@data\n", b"\xff\xfe1,2\n"])
    parse_ts([b"# caf\xe9\n", b"@data\n", b"1,2\n"])  # a comment may be anything
    with pytest.raises(DataError, match="No such file"):
        read_ts(tmp_path / "nowhere.ts")


def test_ten_thousand_damaged_files():
    """Whatever happens to a file, it is read or refused in one sentence."""
    draw = random.Random(0)
    signs = list(b"@#:,()?\n\r\t -+.eE0123456789naNab\x00\xff\xc3\xe2")
    refused = 0
    for _ in range(10_000):
        text = bytearray(draw.choice(EXAMPLES).encode())
        for _ in range(draw.randint(1, 6)):
            position = draw.randrange(len(text) + 1)
            action = draw.randrange(5)
            if action == 0:
                text[position:position] = bytes(draw.choices(signs, k=draw.randint(1, 5)))
            elif action == 1:
                del text[position : position + draw.randint(1, 10)]
            elif action == 2 and position < len(text):
                text[position] = draw.choice(signs)
            elif action == 3:
                source = draw.choice(EXAMPLES).encode()
                start = draw.randrange(len(source))
                text[position:position] = source[start : start + draw.randint(1, 40)]
            else:
                del text[position:]
        try:
            data = parse_ts(bytes(text).splitlines(keepends=True))
            assert len(data) >= 1
        except DataError as error:
            refused += 1
            assert "\n" not in str(error) and str(error).endswith(".")
    assert 1_000 < refused < 10_000


def test_published_pairs(tmp_path):
    (tmp_path / "Name_TRAIN.txt").write_text("1 0.5 0.25\n2 1.5 2.5\n")
    (tmp_path / "Name_TEST.txt").write_text("1.0000e+00 3 4 NaN\n2,5,6,7\n")
    for path in (tmp_path, tmp_path / "Name_TRAIN.txt"):
        data = read_ucr(path)
        assert data.parts.tolist() == ["train", "train", "test", "test"]
        assert data.targets.tolist() == ["1", "2", "1", "2"]
        assert [len(values) for values in data.series] == [2, 2, 2, 3]
    with pytest.raises(DataError, match="Name_TRAIN"):
        read_ucr(tmp_path / "Name_TEST.txt")


def test_arff(tmp_path):
    path = tmp_path / "a.arff"
    path.write_text("@relation r\n@attribute a numeric\n@data\n1,2,?,up\n4,5,6,'down'\n")
    data = read_ucr_file(path)
    np.testing.assert_array_equal(data.series[0][:, 0], [1, 2, np.nan])
    assert data.targets.tolist() == ["up", "down"]
    path.write_text("@data\n'1,2,3\\n4,5,6',up\n\"7,8\\n9,10\",down one\n")
    data = read_ucr_file(path)
    np.testing.assert_array_equal(data.series[0], [[1, 4], [2, 5], [3, 6]])
    assert data.targets.tolist() == ["up", "down one"]
    for bad in (
        "",
        "@data\n",
        "@data\nx,y\n",
        "@data\n'1,2\\n3',a\n",
        "@data\n'1'\n",
        "@data\nup\n",
    ):
        path.write_text(bad)
        with pytest.raises(DataError):
            read_ucr_file(path)


@pytest.mark.parametrize("suffix", [".txt", ".arff"])
def test_damaged_files_of_the_other_forms(suffix, tmp_path):
    draw, path = random.Random(1), tmp_path / f"a{suffix}"
    example = "@data\n1,2,?,up\n'1,2\\n3,4',down\n" if suffix == ".arff" else "1 2 3\n2 3 4 NaN\n"
    for _ in range(500):
        text = bytearray(example.encode())
        for _ in range(draw.randint(1, 4)):
            position = draw.randrange(len(text) + 1)
            text[position : position + draw.randint(0, 3)] = bytes(
                draw.choices(list(b"@,'?\"\\\n e1\x00\xff"), k=draw.randint(0, 3))
            )
        path.write_bytes(bytes(text))
        try:
            read_ucr_file(path)
        except DataError as error:
            assert "\n" not in str(error)
