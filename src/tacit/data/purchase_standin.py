"""Stand-in for Purchase-100 of Jayaraman and Evans, "Evaluating DP Machine Learning in Practice" (2019).

That table is not published in a form that can be fetched. As there, the classes are 100 clusters of the rows, here of
the 48842 binary rows of a9a scaled to norm 1; as there, 10000 rows train and 10000 test, in equal parts of each class.
Nothing measured on it compares with a published number.
"""

from pathlib import Path

import numpy as np

from tacit.data import a9a
from tacit.data.source import array_source

CLUSTERS = 100
PART = 10_000
# The seed that the paper's code uses elsewhere; its split has none.
_SEED = 21312


def labelled(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All rows, float32 (48842, 123) of norm 1, and the cluster of each; the rows not drawn are a pool."""
    from sklearn.cluster import KMeans

    x = np.concatenate([a9a.binary(file.content(folder, dataset="purchase_standin"))[0] for file in a9a.SOURCE.files])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    clusters = KMeans(CLUSTERS, random_state=0)
    return x, clusters.set_params(n_init=10).fit_predict(x).astype(np.int64)


def _read(folder: Path) -> dict[str, np.ndarray]:
    from sklearn.model_selection import train_test_split

    x, y = labelled(folder)
    train, test = train_test_split(np.arange(len(y)), train_size=PART, test_size=PART, stratify=y, random_state=_SEED)
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


SOURCE = array_source(
    "purchase_standin",
    _read,
    summary="100 clusters of census rows, in place of Purchase-100",
    rows=(PART, PART),
    features=a9a.SOURCE.features,
    classes=tuple(str(number) for number in range(CLUSTERS)),
    bounds=(0.0, 1.0),
    licence=a9a.SOURCE.licence,
    origin="the rows of a9a and a9a.t",
    preprocessing="rows scaled to norm 1; labels by KMeans(100) of scikit-learn, seed 0",
    split=f"{PART} rows each for training and testing, stratified, drawn with seed {_SEED}",
    files=a9a.SOURCE.files,
    leaks=(*a9a.SOURCE.leaks, "the labels, clusters of all rows", "the split, which is stratified by them"),
    leak_remedy="The paper does so; the guarantee starts after it.",
    family=a9a.SOURCE.family,
)
