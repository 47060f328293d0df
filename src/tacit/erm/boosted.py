"""`DPBoostedTrees`: a private classifier of boosted random trees on private distribution functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check
from tacit.erm import quantiles, trees
from tacit.erm.base import checked_rows
from tacit.erm.classifiers import PrivateClassifier
from tacit.erm.release import Release, Terms
from tacit.erm.transformers import categories_of, split_bill
from tacit.erm.trees import tree_ensemble

Array = np.ndarray


@dataclass(kw_only=True, eq=False, repr=False)
class DPBoostedTrees(PrivateClassifier):
    """Differentially private boosted trees, binary or multiclass.

    A tenth of mu^2 pays the distribution functions of the numeric columns (`PrivateQuantiles`), the rest the sums of
    residuals in the leaves of trees whose structure no record shaped: mu^2 = mu_b^2 + mu_g^2, exactly.

    Args:
        categorical: columns of categories, by place or name: a cell holds a code 0, ..., high of `data_bounds`, as
            `OrdinalEncoder` makes of declared categories; any other value counts as none of them.
        trees: T.
        depth: D, at most 12.
        quantile_share: of mu^2 for the distribution functions, in (0, 1); 0 without numeric columns.
        structure_seed: public seed of the structure.
        public_size: declared number of records; see `ConvexModel`.

    All other parameters and attributes as in `DPLogisticRegression`; there are no coefficients.

    Attributes:
        trees_: the released `SymmetricTrees`.
        distributions_: column -> `Distribution`.
        feature_importances_: share of each column in the variation of the scores, from released numbers alone.

    Example:
        >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
        >>> model = DPBoostedTrees(epsilon=3.0, delta=1e-5, classes=[0, 1], data_bounds=(-1, 1), trees=100)
        >>> bool(model.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.9)
        True
    """

    categorical: Sequence[Any] = ()
    trees: int = 1600
    depth: int = 7
    quantile_share: float = 0.1
    structure_seed: int = 0
    public_size: int | None = None

    def decision_function(self, X: Any) -> Array:
        """Scores, (n,) of the second class for two classes, else (n, classes)."""
        self._released()
        scores = self.trees_.scores(checked_rows(self, X, reset=False))
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (n, classes)."""
        scores = self.decision_function(X)
        found = trees.chances(np.atleast_2d(scores.T)).T
        return np.hstack([1 - found, found]) if scores.ndim == 1 else found

    @property
    def feature_importances_(self) -> Array:
        """`SymmetricTrees.importances`, (columns,)."""
        self._released()
        return self.trees_.importances(self.distributions_, self.categories_)

    def onnx(self) -> bytes:
        """The scores as an ONNX file; see `tacit.erm.trees.tree_ensemble`."""
        self._released()
        return tree_ensemble(self.trees_, self.columns_)

    def save(self, path: str | Path) -> None:
        """Write the released trees as JSON; `SymmetricTrees.load` reads them."""
        self._released()
        self.trees_.save(path)

    def _fit(self, X: Array, targets: Array) -> Release:
        size = len(X) if self.public_size is None else check.count("public_size", self.public_size)
        width, depth = X.shape[1], check.count("depth", self.depth, maximum=12)
        rng = np.random.default_rng(check.count("structure_seed", self.structure_seed, minimum=0))
        terms = self._terms(X, self._target(size))
        low, high = (np.broadcast_to(end, (width,)) for end in (self.design_.low, self.design_.high))
        categories = categories_of(self, self.categorical, low, high)
        numeric = [each for each in range(width) if each not in categories]
        share = check.real("quantile_share", self.quantile_share, low=0.0, high=1.0, open_low=True, open_high=True)
        count = check.count("trees", self.trees)
        parts = (quantiles.mechanism_of, lambda value: trees.mechanism_of(value, count))
        first, second, mechanism = split_bill(terms, share if numeric else 0.0, parts)
        self.distributions_ = self._distributions(X, numeric, (low, high), terms, first, size)
        structure = trees.draw_structure(rng, self.distributions_, categories, trees=count, depth=depth)
        classes = len(self.classes_)
        self.trees_, facts = trees.boosted(structure, X, targets, classes, terms, multiplier=second, size=size)
        self.categories_, self.columns_ = categories, width
        theta = self.trees_.values.reshape(-1, self.trees_.values.shape[2])
        return terms.release(theta, mechanism, facts | {"quantile_share": share if numeric else 0.0})

    def _distributions(
        self, X: Array, numeric: list[int], ends: tuple[Array, Array], terms: Terms, multiplier: float, size: int
    ) -> dict[int, quantiles.Distribution]:
        if not numeric:
            return {}
        low, high = (end[numeric] for end in ends)
        found = quantiles.distributions(X[:, numeric], low, high, terms, multiplier=multiplier, size=size)
        return dict(zip(numeric, found, strict=True))

    def _sized(self) -> bool:
        return self.public_size is not None

    def _unread(self) -> tuple[str, ...]:
        return (*super()._unread(), "norm_bound")
