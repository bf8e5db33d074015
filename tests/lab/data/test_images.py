"""Picture files: the canonical forms are read as they are, anything else is refused in words."""

import gzip
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from canonical_files import cifar10, cifar_arrays, idx, mnist
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped._base.errors import DataError
from undamped.lab.data.published.formats.images import read_cifar10, read_idx, read_idx_folder
from undamped.lab.data.published.formats.pickles import read_pickled


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("compressed", [False, True])
def test_idx_of_every_kind(tmp_path, dtype, compressed):
    array = (np.arange(24) - 3).reshape(2, 3, 4).astype(dtype)
    content = idx(array)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content, mtime=0) if compressed else content)
    assert np.array_equal(read_idx(path), array)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_four_files_of_mnist(tmp_path, compressed):
    mnist(tmp_path, compressed=compressed)
    result = read_idx_folder(tmp_path)
    assert result.train.shape == (40, 28, 28) and result.test.shape == (20, 28, 28)
    assert result.train.dtype == np.uint8 and result.test_labels.dtype == np.int64


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"PNG and so on",
        idx(np.zeros((3, 4), np.uint8))[:-1],
        idx(np.zeros((3, 4), np.uint8)) + b"x",
        b"\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        gzip.compress(idx(np.zeros((3, 4), np.uint8)), mtime=0)[:-9],
        gzip.compress(b"hello", mtime=0)[:12],
    ],
)
def test_damaged_idx(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not an IDX file"):
        read_idx(path)


def test_idx_parts_that_do_not_fit(tmp_path):
    mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match=r"has t10k images \(\d+, 28, 28\) and labels"):
        read_idx_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="has no file t10k-labels-idx1-ubyte"):
        read_idx_folder(tmp_path)


@pytest.mark.parametrize("form", ["binary", "pickle", "picture"])
def test_the_three_forms_of_cifar_hold_the_same(tmp_path, form):
    cifar10(tmp_path, form)
    result, arrays = read_cifar10(tmp_path), cifar_arrays()
    train = [arrays[f"data_batch_{i}"] for i in range(1, 6)]
    assert np.array_equal(result.train, np.concatenate([images for images, _ in train]))
    assert result.train_labels.tolist() == [label for _, labels in train for label in labels]
    assert np.array_equal(result.test, arrays["test_batch"][0])
    assert result.test_labels.tolist() == arrays["test_batch"][1]


def test_bad_cifar(tmp_path):
    with pytest.raises(DataError, match=r"has no data_batch_1.bin, data_batch_1 or"):
        read_cifar10(tmp_path)
    cifar10(tmp_path, "pickle")
    (tmp_path / "data_batch_3").unlink()
    with pytest.raises(DataError, match="has no file data_batch_3"):
        read_cifar10(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": [1]}, protocol=2))
    with pytest.raises(DataError, match="has no 'data' of 3072 bytes per image"):
        read_cifar10(tmp_path)
    cifar10(tmp_path, "binary")
    (tmp_path / "test_batch.bin").write_bytes(b"12345")
    with pytest.raises(DataError, match="not records of 3073"):
        read_cifar10(tmp_path)


def test_bad_cifar_pictures(tmp_path):
    cifar10(tmp_path, "picture")
    content = (tmp_path / "data_batch_2.png").read_bytes()
    (tmp_path / "data_batch_2.png").write_bytes(content[:200])
    with pytest.raises(DataError, match="damaged"):
        read_cifar10(tmp_path)
    (tmp_path / "data_batch_2.png").write_bytes(content)
    (tmp_path / "train_lables.json").write_text("[1, 2]")
    with pytest.raises(DataError, match=r"training images and .* labels"):
        read_cifar10(tmp_path)
    (tmp_path / "train_lables.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match="a JSON list"):
        read_cifar10(tmp_path)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(value=plain, protocol=st.sampled_from([3, 4, 5]))
def test_plain_pickles_come_back(tmp_path_factory, value, protocol):
    path = tmp_path_factory.mktemp("pickles") / "file"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    assert read_pickled(path) == value


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "int32", ">i2", "float64"])
def test_arrays_come_back(tmp_path, protocol, dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    path = tmp_path / "file"
    for given_array in (array, np.asfortranarray(array)):
        path.write_bytes(pickle.dumps({"a": given_array, "b": [given_array]}, protocol=protocol))
        result = read_pickled(path)
        assert np.array_equal(result["a"], array) and result["a"].dtype == array.dtype
        assert np.array_equal(result["b"][0], array)


def test_python_2_wrote_texts_as_bytes(tmp_path):
    """The opcodes of the published files: protocol 2, old texts, numpy.core.multiarray."""
    path = tmp_path / "file"
    path.write_bytes(
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03"
        b"cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\n"
        b"U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"U\x06abcdeftbU\x06labelsq\x06]q\x07(K\x06K\x09eu."
    )
    result = read_pickled(path)
    assert result[b"labels"] == [6, 9]
    assert result[b"data"].tobytes() == b"abcdef" and result[b"data"].shape == (2, 3)


class Evil:
    def __reduce__(self):
        return (print, ("a pickle ran",))


@pytest.mark.parametrize(
    "value", [Evil(), OrderedDict(a=1), {1, 2}, np.array(["a"]), np.array([object()]), Evil]
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_is_ever_called(tmp_path, capsys, value, protocol):
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    with pytest.raises(DataError, match="Nothing in it was executed"):
        read_pickled(path)
    assert capsys.readouterr().out == ""


def test_what_a_pickle_shares_is_copied_once(tmp_path):
    """Forty pairs, each of the one before twice: 2⁴⁰ items if each mention were a copy."""
    path = tmp_path / "file"
    path.write_bytes(b"\x80\x02]q\x00" + b"".join(
        b"]q%c(h%ch%ce" % (n + 1, n, n) for n in range(40)
    ) + b"\x90."[1:])  # fmt: skip
    with pytest.raises(DataError, match="it is damaged"):  # 41 lists lie on the stack
        read_pickled(path)
    value = []
    for _ in range(40):
        value = [value, value]
    path.write_bytes(pickle.dumps(value, protocol=2))
    shared = read_pickled(path)
    assert len(shared) == 2 and shared[0] is shared[1]


def test_pickles_that_take_forever_are_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\x80\x02" + b"(t" * 400_000 + b"t.")  # linear, whatever is on the stack
    with pytest.raises(DataError, match="it is damaged"):
        read_pickled(path)
    key = ()
    for _ in range(60):  # nobody could compute its hash
        key = (key, key)
    head = pickle.dumps(key, protocol=2)[2:-1]
    path.write_bytes(b"\x80\x02}" + head + b"K\x01s.")
    with pytest.raises(DataError, match="it is damaged"):
        read_pickled(path)
    cyclic = []
    cyclic.append(cyclic)
    path.write_bytes(pickle.dumps(cyclic, protocol=2))
    with pytest.raises(DataError, match="it is damaged"):
        read_pickled(path)
