"""Text files: Penn Treebank, IMDB in both forms, GloVe in both forms."""

import numpy as np
import pytest
from canonical_files import REVIEWS, glove, imdb_folders, imdb_half, ptb

from undamped._base.errors import DataError
from undamped.lab.data.published.formats.text import (
    Reviews,
    divide_reviews,
    read_glove,
    read_imdb,
    read_penn_treebank,
    words,
)


def test_penn_treebank_keeps_line_ends_and_nothing_around_lines(tmp_path):
    ptb(tmp_path)
    (tmp_path / "ptb.valid.txt").write_text("  a b \n\n c\n")
    parts = read_penn_treebank(tmp_path)
    assert parts["valid"] == "a b\nc\n"
    assert parts["train"].startswith("the <unk> fell N % to $ 1.5\nmr. x")


def test_bad_penn_treebank(tmp_path):
    with pytest.raises(DataError, match=r"ptb.train.txt cannot be read: No such file"):
        read_penn_treebank(tmp_path)
    ptb(tmp_path)
    (tmp_path / "ptb.test.txt").write_text(" \n")
    with pytest.raises(DataError, match="is empty"):
        read_penn_treebank(tmp_path)
    (tmp_path / "ptb.test.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read_penn_treebank(tmp_path)


def test_words_are_lower_case_without_line_breaks():
    assert words("A GOOD film.<br /><br/>I didn't, 7/10!") == [
        "a", "good", "film", ".", "i", "didn't", ",", "7", "10", "!",
    ]  # fmt: skip


def test_imdb_in_both_forms(tmp_path):
    imdb_half(tmp_path / "half")
    result = read_imdb(tmp_path / "half")
    assert list(result) == ["train"] and len(result["train"].texts) == 40
    assert (
        result["train"].texts[0] == f"{REVIEWS[0][0]} 0" and result["train"].labels[:2].sum() == 1
    )
    imdb_folders(tmp_path / "whole")
    result = read_imdb(tmp_path / "whole")
    assert {name: len(part.texts) for name, part in result.items()} == {"train": 12, "test": 12}
    assert result["test"].labels.tolist() == [0] * 6 + [1] * 6
    assert all("test" in text for text in result["test"].texts)


@pytest.mark.parametrize(
    "content", ["", "a,b\n1,2\n", "text,label\nhello,3\n", "text,label\nhello,1\n", "text,label\nx"]
)
def test_bad_imdb_tables(tmp_path, content):
    (tmp_path / "imdb-half.csv").write_text(content)
    with pytest.raises(DataError, match=r"needs the columns|both classes"):
        read_imdb(tmp_path)


def test_no_imdb_at_all(tmp_path):
    with pytest.raises(DataError, match="there is no folder aclImdb"):
        read_imdb(tmp_path)


def test_identical_reviews_stay_together():
    texts = [f"review {i % 30}" for i in range(90)]
    labels = np.array([i % 30 % 2 for i in range(90)])
    fractions = {"train": 0.6, "valid": 0.2, "test": 0.2}
    parts = divide_reviews(Reviews(texts, labels), fractions, seed=1)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(90))
    texts_of = [{texts[i] for i in index} for index in parts.values()]
    assert not (texts_of[0] & texts_of[1] or texts_of[0] & texts_of[2] or texts_of[1] & texts_of[2])
    assert {name: len(index) for name, index in parts.items()} == {
        "train": 54, "valid": 18, "test": 18,
    }  # fmt: skip
    assert all(labels[index].mean() == 0.5 for index in parts.values())
    second = divide_reviews(Reviews(texts, labels), fractions, seed=2)
    assert not np.array_equal(second["test"], parts["test"])


@pytest.mark.parametrize("packed", [True, False])
def test_glove_in_both_forms(tmp_path, packed):
    glove(tmp_path, size=7, packed=packed)
    result, size = read_glove(tmp_path, {"good", "nonsense"})
    assert size == 7 and list(result) == ["good"]
    expected = np.random.default_rng(2).normal(size=(4, 7)).astype(np.float32)[0]
    assert np.allclose(result["good"], expected)


def test_bad_glove(tmp_path):
    with pytest.raises(DataError, match="neither"):
        read_glove(tmp_path, set())
    (tmp_path / "glove.txt").write_text("good 1 2 3\nbad 1 2\n")
    with pytest.raises(DataError, match="a word and its numbers on each line"):
        read_glove(tmp_path, {"good"})
    (tmp_path / "glove.txt").write_text("good 1 two 3\n")
    with pytest.raises(DataError, match="a word and its numbers on each line"):
        read_glove(tmp_path, {"good"})
    (tmp_path / "glove.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match="the arrays 'words' and 'vectors'"):
        read_glove(tmp_path, {"good"})
    np.savez(tmp_path / "glove.npz", words=np.array(["a"], object), vectors=np.zeros((1, 2)))
    with pytest.raises(DataError, match="the arrays 'words' and 'vectors'"):
        read_glove(tmp_path, {"good"})
