"""MovieLens: ratings of films from one to five stars (Harper and Konstan 2015).

`movielens` is the 100K release, `movielens_1m` the larger one that Bu, Dong, Long, Su, "Deep Learning with Gaussian
Differential Privacy" (arXiv 1911.11607) use. An example is a pair (user, item); the split is that of the paper: 20 %
of the ratings, drawn with seed 100. One person gives many ratings, so a guarantee for one rating is weaker than a
guarantee for one person.
"""

import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File
from tacit.data.source import Source

STARS = tuple(str(stars) for stars in range(1, 6))
_SEED = 100
_LICENCE = "GroupLens: research use, no redistribution, no commercial use (cite Harper and Konstan 2015)"


def ratings(content: bytes, *, separator: str, users: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of user and item counted from 0, int64 (rows, 2), and stars, int64 (rows,), of "user item stars time".

    Args:
        content: the file, one rating a line.
        separator: between the columns.
        users: number of users that the release declares.
        items: number of items that the release declares.

    Raises:
        InvalidInput: a line has other columns, or a number is outside what the release declares.
    """
    lines = content.decode("ascii").split("\n")
    table = [line.split(separator) for line in lines if line.strip()]
    if not table or any(len(row) != 4 for row in table):
        raise check.fail("ratings", f"lines of four numbers parted by {separator!r}", "lines of another form")
    values = np.array(table, dtype=np.int64)
    pairs, stars = values[:, :2] - 1, values[:, 2]
    inside = (pairs >= 0).all() and (pairs < [users, items]).all() and ((stars >= 1) & (stars <= 5)).all()
    if not inside:
        rule = f"of users 1..{users}, items 1..{items} and stars 1..5"
        raise check.fail("ratings", rule, "others among them")
    return pairs, stars


def _source(
    name: str,
    *,
    summary: str,
    rows: tuple[int, int],
    users: int,
    items: int,
    file: File,
    unpack: Callable[[bytes], bytes],
    separator: str,
) -> Source:
    def read(folder: Path) -> Dataset:
        content = unpack(file.content(folder, dataset=name))
        pairs, stars = ratings(content, separator=separator, users=users, items=items)
        return from_arrays(
            pairs,
            y_train=stars,
            classes=STARS,
            task="ratings",
            bounds=(np.zeros(2), np.array([users - 1, items - 1])),
            codes=True,
            feature_names=("user", "item"),
            name=name,
            notes=("source: GroupLens", f"licence: {_LICENCE}", "preprocessing: none"),
            seed=_SEED,
        )

    return Source(
        name=name,
        summary=summary,
        rows=rows,
        features=(2,),
        classes=STARS,
        licence=_LICENCE,
        read=read,
        files=(file,),
        task="ratings",
    )


def _from_zip(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read("ml-1m/ratings.dat")


SOURCE = _source(
    "movielens",
    summary="100000 ratings of films",
    rows=(80000, 20000),
    users=943,
    items=1682,
    file=File("movielens_100k/u.data.xz", "9d6358cae3fa4084c9ae005aa6bc2d46152ba2a7a558ff7156079c739b127fc4", 665096),
    unpack=lzma.decompress,
    separator="\t",
)
# The paper numbers the 3706 rated films anew; with the published numbers 246 rows of the tables are never used.
MILLION = _source(
    "movielens_1m",
    summary="1000209 ratings of films",
    rows=(800167, 200042),
    users=6040,
    items=3952,
    file=File(
        "movielens_1m/ml-1m.zip",
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        5917549,
        ("https://files.grouplens.org/datasets/movielens/ml-1m.zip",),
    ),
    unpack=_from_zip,
    separator="::",
)
