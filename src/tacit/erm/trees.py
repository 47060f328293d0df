"""`SymmetricTrees`: trees whose structure reads no record, boosted by noisy sums of residuals; JSON and ONNX files.

Symmetric trees as an ONNX file with one `TreeEnsemble` (ai.onnx.ml, opset 5).

`DPBoostedTrees`: a private classifier of boosted random trees on private distribution functions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import exp2, expit

from tacit import check
from tacit.data.files import optional
from tacit.erm import quantiles
from tacit.erm.base import checked_rows
from tacit.erm.estimators import PrivateClassifier
from tacit.erm.gradient import QUANTILE_SHARE, TWO
from tacit.erm.quantiles import Distribution
from tacit.erm.release import Release, Terms
from tacit.erm.transformers import categories_of, member_codes, split_bill
from tacit.mechanisms import Gaussian, Mechanism
from tacit.serialization import json_table, write_text

Array = np.ndarray

RESIDUAL_BOUND = 0.5
"""C: bound on the norm of one record's residuals, and L2 sensitivity of the sums of one tree."""
# Whole units of 2^-20 per 1: sums of up to 2^33 residuals are exact in double precision.
_UNITS = 2.0**20
# The noise of all trees leaves a deviation of this on a score; no more than the largest total step.
_SCORE_NOISE, _LARGEST_STEP = 0.4, 120.0
_COLUMNS_OF_A_TREE = 3
# n mu from which trees are deep: fitted on credit_data, mlc_churn, spam7, Default and nassCDS at epsilon 1.
_DEEP_FROM, _SHALLOW, _DEEP = 3000.0, 4, 7
# Rows drawn for the importances.
_PUBLIC_ROWS = 500
_FORMAT = "tacit symmetric trees 1"


@dataclass(frozen=True, eq=False)
class SymmetricTrees:
    """T trees of depth D: at level d all nodes of tree t ask the same question of one column.

    Args:
        columns: (T, D), the column of each level.
        cuts: (T, D), a numeric column's answer is x > cut; NaN for a column of categories.
        members: bool (T, D, M), a category's answer, by its code 0, ..., M - 1; any other value answers no.
        values: (T, 2^D, K), what a leaf adds to the K scores.
    """

    columns: Array
    cuts: Array
    members: Array
    values: Array

    def leaves(self, tree: int, X: Array) -> Array:
        """The leaf of each row, (n,): the answer at level d counts 2^d."""
        place = np.zeros(len(X), dtype=np.int64)
        for level in range(self.columns.shape[1]):
            column = X[:, self.columns[tree, level]]
            if np.isnan(self.cuts[tree, level]):
                yes = _member(column, self.members[tree, level])
            else:
                yes = column > self.cuts[tree, level]
            place += yes.astype(np.int64) << level
        return place

    def scores(self, X: Array) -> Array:
        """Sums of leaf values, (n, K)."""
        X, total = np.asfortranarray(X), np.zeros((self.values.shape[2], len(X)))
        for tree, values in enumerate(self.values):
            total += values[self.leaves(tree, X)].T
        return total.T

    def importances(self, known: Mapping[int, Distribution], categories: Mapping[int, int]) -> Array:
        """Share of each column in the variation of the scores, summing to 1 (or all 0): total Sobol indices.

        Rows are drawn from the released distribution functions, categories uniformly, each column by itself; a
        column's share is the mean squared change of the scores when it is drawn anew (Jansen 1999). No record is read.

        Args:
            known: numeric column -> its distribution.
            categories: column of categories -> their number.
        """
        rng, width = np.random.default_rng(0), len(known) + len(categories)
        first, second = (_public_rows(rng, known, categories) for _ in range(2))
        base, found = self.scores(first), np.zeros(width)
        for column in range(width):
            moved = first.copy()
            moved[:, column] = second[:, column]
            found[column] = ((self.scores(moved) - base) ** 2).mean()
        return found / (found.sum() or 1.0)

    def save(self, path: str | Path) -> None:
        """Write the trees as JSON."""
        cuts = [[None if math.isnan(cut) else cut for cut in row] for row in self.cuts.tolist()]
        members = self.members.astype(int).tolist()
        table = {"format": _FORMAT, "columns": self.columns.tolist(), "cuts": cuts, "members": members}
        write_text(Path(path), json.dumps(table | {"values": self.values.tolist()}))

    @classmethod
    def load(cls, path: str | Path) -> SymmetricTrees:
        """Trees written by `save`.

        Raises:
            InvalidInput: the file holds something else.
        """
        table = json_table("path", path)
        rule = check.fail("path", f"a file of {_FORMAT!r}", str(path), "Write one by SymmetricTrees.save.")
        if table.get("format") != _FORMAT:
            raise rule
        try:
            columns, members = np.array(table["columns"], dtype=np.int64), np.array(table["members"], dtype=bool)
            cuts, values = (np.array(table[name], dtype=np.float64) for name in ("cuts", "values"))
        except (KeyError, TypeError, ValueError):
            raise rule from None
        shapes = columns.ndim == 2 and cuts.shape == columns.shape == members.shape[:2] and members.ndim == 3
        if not shapes or values.ndim != 3 or values.shape[:2] != (len(columns), 2 ** columns.shape[1]):
            raise rule
        if not np.isfinite(values).all() or (columns < 0).any():
            raise rule
        return cls(columns, cuts, members, values)


def draw_structure(
    rng: np.random.Generator,
    known: Mapping[int, Distribution],
    categories: Mapping[int, int],
    *,
    trees: int,
    depth: int,
) -> SymmetricTrees:
    """Trees without values, of public random numbers and released distribution functions; no record is read.

    A tree takes three random columns and asks one of them at each level: a numeric one for a threshold that is uniform
    in its distribution function, a column of categories for a random half of them.

    Args:
        rng: public.
        known: numeric column -> its distribution.
        categories: column of categories -> their number.
        trees: T.
        depth: D.
    """
    width = len(known) + len(categories)
    some = min(_COLUMNS_OF_A_TREE, width)
    three = rng.random((trees, width)).argsort(axis=1)[:, :some]
    columns = three[np.arange(trees)[:, None], rng.integers(0, some, (trees, depth))]
    cuts, shares = np.full((trees, depth), math.nan), rng.random((trees, depth))
    members = np.zeros((trees, depth, max(categories.values(), default=0)), dtype=bool)
    for column, distribution in known.items():
        asked = columns == column
        cuts[asked] = distribution.quantile(shares[asked])
    for column, count in categories.items():
        asked = columns == column
        order = rng.random((int(asked.sum()), count)).argsort(axis=1)
        half = np.zeros((len(order), members.shape[2]), dtype=bool)
        half[:, :count] = order < (count + 1) // 2
        members[asked] = half
    return SymmetricTrees(columns, cuts, members, np.zeros((trees, 2**depth, 0)))


def _public_rows(rng: np.random.Generator, known: Mapping[int, Distribution], categories: Mapping[int, int]) -> Array:
    rows = np.empty((_PUBLIC_ROWS, len(known) + len(categories)))
    for column, distribution in known.items():
        rows[:, column] = distribution.quantile(rng.random(_PUBLIC_ROWS))
    for column, count in categories.items():
        rows[:, column] = rng.integers(0, count, _PUBLIC_ROWS)
    return rows


def boosted(
    structure: SymmetricTrees, X: Array, labels: Array, classes: int, terms: Terms, *, multiplier: float, size: int
) -> tuple[SymmetricTrees, dict[str, float]]:
    """`structure` with the values of boosting: each tree releases the noisy sums of the residuals in its leaves.

    One record is in one leaf of a tree with residuals of norm at most C, so the sums of a tree have L2 sensitivity C;
    the T trees compose adaptively as Gaussian steps. Residuals are cut towards 0 to whole units, so their sums are
    exact, and they follow from the record and released values alone.

    Args:
        structure: of `draw_structure`.
        X: rows.
        labels: (n,), 0, ..., classes - 1.
        classes: at least 2; two of them share one score.
        terms: of the release; `mechanism_of(multiplier, T)` is charged before any sum is drawn.
        multiplier: noise multiplier of all trees together.
        size: public number of records.
    """
    trees, leaves = len(structure.columns), 2 ** structure.columns.shape[1]
    outputs = classes if classes > 2 else 1
    terms.charge(mechanism_of(multiplier, trees), "boosted trees", exact=True)
    std = multiplier * math.sqrt(trees) * RESIDUAL_BOUND
    total = min(_SCORE_NOISE * size / (multiplier * leaves * RESIDUAL_BOUND), _LARGEST_STEP)
    rate = total / trees * leaves / size
    X, values = np.asfortranarray(X), np.zeros((trees, leaves, outputs))
    answers = np.stack([labels == each for each in (range(classes) if outputs > 1 else (1,))]).astype(np.float64)
    scores = np.zeros((outputs, len(X)))
    for tree in range(trees):
        place, units = structure.leaves(tree, X), _units(answers - chances(scores))
        # Without records bincount gives integers.
        counts = [np.bincount(place, weights=each, minlength=leaves) for each in units]
        sums = np.stack(counts, axis=1).astype(np.float64)
        values[tree] = rate / _UNITS * terms.noisy(sums, std=std * _UNITS)
        scores += values[tree][place].T
    facts = {"noise_std": std, "trees": float(trees), "value_std": rate * std, "clip_norm": RESIDUAL_BOUND}
    return SymmetricTrees(structure.columns, structure.cuts, structure.members, values), facts


def mechanism_of(multiplier: float, trees: int) -> Mechanism:
    """What `boosted` releases: one Gaussian step a tree, together of this noise multiplier."""
    return Gaussian(multiplier * math.sqrt(trees)) * trees


def chances(scores: Array) -> Array:
    """Probabilities (K, n) of scores (K, n): sigmoid of one, softmax of more; each record's by itself, to the bit."""
    if len(scores) == 1:
        return expit(scores)
    # SciPy's exp2 treats one number at a time; NumPy's vectors may round a value otherwise at another place.
    powers = exp2((scores - scores.max(axis=0)) * math.log2(math.e))
    return powers / powers.sum(axis=0)


def _units(residuals: Array) -> Array:
    """Residuals (K, n) clipped to norm C and cut towards 0 to whole units: their norm stays at most C."""
    norms = np.sqrt((residuals**2).sum(axis=0))
    # The division may round up: one unit in 2^40 less keeps the norm below C before it is cut.
    scale = np.minimum(RESIDUAL_BOUND / np.maximum(norms, RESIDUAL_BOUND), 1.0) * (1 - 2.0**-40)
    return np.trunc(residuals * scale * _UNITS)


def _member(column: Array, members: Array) -> Array:
    """Which values are the code of a member; no other value is."""
    return np.append(members, False)[member_codes(column, len(members))]


_OPSET, _ML_OPSET, _IR_VERSION = 20, 5, 10
_GREATER, _MEMBER = 3, 6  # BRANCH_GT and BRANCH_MEMBER of the operator's modes
_SUM, _NO_TRANSFORM = 1, 0


def tree_ensemble(model: SymmetricTrees, columns: int) -> bytes:
    """The ONNX file of the scores: input "X", double (n, columns), output "scores", double (n, K).

    A node of `TreeEnsemble` adds to one score, so K scores take K copies of a tree.

    Args:
        model: the trees.
        columns: number of columns of X.

    Raises:
        TacitError: the extra `onnx` is not installed.
    """
    onnx = optional("onnx", "onnx")
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    trees, depth = model.columns.shape
    outputs, inner, leaves = model.values.shape[2], 2**depth - 1, 2**depth
    # Node i of a tree in heap order is at level floor(log2(i + 1)); its children are 2 i + 1 (no) and 2 i + 2 (yes).
    level = np.floor(np.log2(np.arange(inner) + 1)).astype(np.int64)
    child = 2 * np.arange(inner) + 1
    # Leaves in heap order hold the first answer in their highest bit, places of `values` in their lowest.
    order = np.array([int(f"{each:0{depth}b}"[::-1], 2) for each in range(leaves)])
    copies, starts = np.arange(trees * outputs), np.arange(trees * outputs)[:, None]
    tree = copies // outputs
    member = np.isnan(model.cuts)
    last = level == depth - 1
    no = np.where(last, starts * leaves + child - inner, starts * inner + child)
    cuts = np.where(member, 0.0, model.cuts)[tree][:, level].ravel()
    modes = np.where(member, _MEMBER, _GREATER)[tree][:, level].ravel()
    sets = [
        np.append(np.flatnonzero(model.members[each, at]).astype(np.float64), np.nan)
        for each in tree
        for at in level
        if member[each, at]
    ]
    attributes = {
        "n_targets": outputs,
        "aggregate_function": _SUM,
        "post_transform": _NO_TRANSFORM,
        "tree_roots": (copies * inner).tolist(),
        "nodes_featureids": model.columns[tree][:, level].ravel().tolist(),
        "nodes_splits": helper.make_tensor("splits", double, cuts.shape, cuts),
        "nodes_modes": helper.make_tensor("modes", onnx.TensorProto.UINT8, modes.shape, modes.astype(np.uint8)),
        "nodes_falsenodeids": no.ravel().tolist(),
        "nodes_truenodeids": (no + 1).ravel().tolist(),
        "nodes_falseleafs": np.tile(last, len(copies)).astype(int).tolist(),
        "nodes_trueleafs": np.tile(last, len(copies)).astype(int).tolist(),
        "leaf_targetids": np.repeat(copies % outputs, leaves).tolist(),
        "leaf_weights": helper.make_tensor(
            "weights", double, (len(copies) * leaves,), model.values[:, order].transpose(0, 2, 1).ravel()
        ),
    }
    if sets:
        values = np.concatenate(sets)
        attributes["membership_values"] = helper.make_tensor("members", double, values.shape, values)
    node = helper.make_node("TreeEnsemble", ["X"], ["scores"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "tacit",
        [helper.make_tensor_value_info("X", double, ["n", columns])],
        [helper.make_tensor_value_info("scores", double, ["n", outputs])],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="tacit")
    onnx.checker.check_model(made)
    return made.SerializeToString()


@dataclass(kw_only=True, eq=False, repr=False)
class DPBoostedTrees(PrivateClassifier):
    """Differentially private boosted trees, binary or multiclass.

    A tenth of mu^2 pays the distribution functions of the numeric columns (`PrivateQuantiles`), the rest the sums of
    residuals in the leaves of trees whose structure no record shaped: mu^2 = mu_b^2 + mu_g^2, exactly.

    Args:
        categorical: columns of categories, by place or name: a cell holds a code 0, ..., high of `data_bounds`, as
            `OrdinalEncoder` makes of declared categories; any other value counts as none of them.
        trees: T.
        depth: D, at most 12; None means 7, or 4 below 3,000 records times mu of the target.
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
    depth: int | None = None
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
        found = chances(np.atleast_2d(scores.T)).T
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
        width, target = X.shape[1], self._target(size)
        shape = self._shape(size, width, target, TWO)
        usual = _DEEP if size * shape.mu >= _DEEP_FROM else _SHALLOW
        depth = usual if self.depth is None else check.count("depth", self.depth, maximum=12)
        rng = np.random.default_rng(check.count("structure_seed", self.structure_seed, minimum=0))
        terms = self._terms(X, target)
        low, high = (np.broadcast_to(end, (width,)) for end in (self.design_.low, self.design_.high))
        categories = categories_of(self, self.categorical, low, high)
        share = QUANTILE_SHARE if len(categories) < width else 0.0
        count = check.count("trees", self.trees)
        parts = (share, quantiles.mechanism_of), (1 - share, lambda value: mechanism_of(value, count))
        (first, second), mechanism = split_bill(terms, *parts)
        self.distributions_ = quantiles.distributions(
            X, low, high, terms, multiplier=first, size=size, categories=categories
        )
        structure = draw_structure(rng, self.distributions_, categories, trees=count, depth=depth)
        classes = len(self.classes_)
        self.trees_, facts = boosted(structure, X, targets, classes, terms, multiplier=second, size=size)
        self.categories_, self.columns_ = categories, width
        theta = self.trees_.values.reshape(-1, self.trees_.values.shape[2])
        return terms.release(theta, mechanism, facts | {"quantile_share": share})

    def _unread(self) -> tuple[str, ...]:
        return (*super()._unread(), "norm_bound")
