"""`PrivateEstimator`: the parameters by which a scikit-learn estimator spends privacy, and the checks of its data.

Steps of a scikit-learn pipeline that read private data without paying, found when a private estimator is fitted.
"""

import copy
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import validate_data

from tacit import check
from tacit.accounting import Ledger
from tacit.budget.shared_ledger import SharedLedger
from tacit.data.dataset import report
from tacit.data.files import bad_cells, listed
from tacit.erm.release import certified
from tacit.erm.weights import Relatives
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.noise import SecureStream, SeededStream
from tacit.relation import Relation
from tacit.tradeoff import Epsilon, Target
from tacit.training.plan import warn_about_delta

Array = np.ndarray

PUBLIC = "The number of training records and every declared bound, class and setting are public."

PUBLIC_SIZE = "The declared size and every declared bound, class and setting are public."

_ONE_PROCESS = (
    "an estimator with ledger= cannot be pickled or deep-copied: what its copy records, in another process say, never "
    "reaches that ledger. Run in one process (n_jobs=1), give it the ledger of a registry, which processes share: "
    'tacit.budget.Registry(...).dataset(...).ledger("search"), or save the fitted model after set_params(ledger=None).'
)
# Default delta: at most 1e-5, the usual choice, and below 1 / n for every n.
LARGEST_DELTA, DELTA_POWER = 1e-5, -1.1


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):
    """Base of all private estimators and transformers.

    Estimators are dataclasses: their fields are their parameters, and the generated constructor only stores them, as
    scikit-learn requires. A subclass lists its further parameters and changed defaults.

    Args:
        epsilon: > 0, of one fit.
        delta: of one fit; None means min(1e-5, n^-1.1), 0 asks for pure differential privacy.
        target: any `Target` in place of epsilon and delta, e.g. `Advantage(0.1)`.
        relation: neighbouring relation of the guarantee; "add_remove" is certified as "zero_out" by estimators whose
            settings follow the number of records (see `public_size` of `ConvexModel`).
        ledger: spent from and written to, shared by every estimator that is given it (and by their clones). One of a
            registry (`tacit.budget`) is shared with other processes too; any other refuses to be sent there.
        unsafe_seed: repeatable noise: nothing is private, and the ledger says so.
    """

    epsilon: float = 1.0
    delta: float | None = None
    target: Target | None = None
    relation: str = "add_remove"
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def _target(self, records: int) -> Target:
        return target_for(self.target, self.epsilon, self.delta, records)

    def _open_ledger(self, *, sized: bool = False) -> Ledger:
        """The ledger to spend from: the given one, or a new one under the relation that is certified.

        It says what a pipeline's steps before this one take as public. It is marked where they read the data unpaid,
        and where clones of this estimator pay into ledgers of their own; see `_weakened`.
        """
        unpaid = unpaid_steps()
        warn_of(unpaid)
        ledger = self._spent_from(sized=sized)
        for step in unpaid:
            ledger.read_from_data(f"pipeline step {step}")
        for sentence in declared_steps():
            ledger.assume(sentence)
        apart = self.ledger is None and self._own_relatives().fitted(self, ledger)
        self._weakened = bool(unpaid) or apart
        return ledger

    _weakened = False

    def _own_relatives(self) -> Relatives:
        """Itself, its clones and its copies."""
        if "_relatives" not in vars(self):
            self._relatives = Relatives()
        return self._relatives

    def __sklearn_clone__(self) -> Self:
        """A clone, as scikit-learn makes it, that is known as one."""
        cloned: Self = super().__sklearn_clone__()  # type: ignore[misc]
        cloned._relatives = self._own_relatives()
        return cloned

    def _spent_from(self, *, sized: bool) -> Ledger:
        if self.ledger is None:
            return Ledger(relation=certified(Relation.parse(self.relation), sized=sized))
        check.that(isinstance(self.ledger, Ledger), "ledger", "a tacit Ledger or None", self.ledger)
        if not Relation.parse(self.relation).covers(self.ledger.relation):
            raise check.fail("relation", f"that of the given ledger, {self.ledger.relation.value}", str(self.relation))
        if not sized:
            self.ledger.leave_places()
        return self.ledger

    def _stream(self) -> SecureStream | SeededStream:
        """The secure stream, or a seeded one, which a ledger marks as unsafe."""
        if self.unsafe_seed is None:
            return SecureStream()
        return SeededStream(check.count("unsafe_seed", self.unsafe_seed, minimum=0))

    def __getstate__(self) -> dict[str, Any]:
        """State of the model with the content of its ledger; raises `TypeError` where that is shared in one process."""
        if self.ledger is not None and not isinstance(self.ledger, SharedLedger):
            raise TypeError(_ONE_PROCESS)
        if not hasattr(self, "ledger_"):
            self._own_relatives().elsewhere = True  # What the copy pays is not seen here.
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        if hasattr(self, "ledger_"):
            state = {name: value for name, value in state.items() if name != "_relatives"}
        return {name: _content(value) for name, value in state.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy, its ledger closed unless that is in a registry; raises `TypeError` where pickling does."""
        if self.ledger is not None and not isinstance(self.ledger, SharedLedger):
            raise TypeError(_ONE_PROCESS)
        self._own_relatives()
        copied = type(self).__new__(type(self))
        copied.__setstate__({name: copy.deepcopy(_content(value), memo) for name, value in vars(self).items()})
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The fitted model with a closed copy of its ledger, which can be read but not written."""
        super().__setstate__(state)
        if isinstance(state.get("ledger_"), dict):
            self.ledger_ = Ledger.from_spec(state["ledger_"])
            self.ledger_.close()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


def _content(value: Any) -> Any:
    """The content of a ledger of this process; anything else as it is."""
    return value.spec() if isinstance(value, Ledger) and not isinstance(value, SharedLedger) else value


def target_for(target: Target | None, epsilon: float | None, delta: float | None, records: int) -> Target:
    """`target`, or `Epsilon(epsilon, delta)` with delta = min(1e-5, n^-1.1) unless given; warns where delta >= 1/n.

    Args:
        target: any `Target`, or None.
        epsilon: > 0; ignored where `target` is given.
        delta: in [0, 1); ignored likewise.
        records: n, public.

    Raises:
        InvalidInput: `target` is not a `Target`, or epsilon or delta is out of range.
    """
    if target is not None:
        if not isinstance(target, Target):
            raise check.fail("target", "a Target such as Advantage(0.1), Mu(0.5) or Epsilon(1, 1e-6)", target)
        return target
    chosen = default_delta(records) if delta is None else delta
    warn_about_delta(chosen, records)
    return Epsilon(check.positive("epsilon", epsilon, "Use a finite number such as 1.0."), chosen)


def default_delta(records: int) -> float:
    """Default delta of n records: min(1e-5, n^-1.1)."""
    return min(LARGEST_DELTA, float(records) ** DELTA_POWER)


_ENCODE = (
    "Encode them by PublicOneHot(categories=[[...]]) in a ColumnTransformer, encode the whole frame by "
    "PublicTable(bounds=..., categories=...), or drop them."
)
QUOTES_NOTHING = (
    "Expected 2D array",
    "Expected a 2-dimensional container",
    "Found array with",
    "Found input variables",
    "Complex data not supported",
    "Sparse data was passed",
    "X has ",
    "The feature names should match",
    "Feature names ",
    "y should be a 1d array",
    "setting an array element with a sequence",
    "float() argument must be",
    "'<' not supported",
)
"""Beginnings of messages of scikit-learn and numpy that name shapes and types, and values in a dump at most."""


def checked_rows(estimator: BaseEstimator, X: object, *, reset: bool) -> Array:
    """X as float64 (rows, columns), its shape and names checked; cells that are not finite are named."""
    array = numeric_rows(estimator, X, reset=reset)
    finite = np.isfinite(array)
    if not finite.all():
        rows, places = np.nonzero(~finite)
        names = getattr(estimator, "feature_names_in_", range(array.shape[1]))
        hint = "Put PublicImputer(fill=...) before the estimator, or leave these rows out."
        raise bad_cells("X", "finite, without NaN or inf", rows, [names[i] for i in np.unique(places)], hint)
    return array


def numeric_rows(
    estimator: BaseEstimator,
    X: object,
    *,
    reset: bool,
    finite: bool | str = False,
    keep: tuple[str, ...] = QUOTES_NOTHING,
) -> Array:
    """X as float64 (rows, columns), its shape and names checked; columns of texts are named.

    Args:
        estimator: whose shape and names count.
        X: rows.
        reset: whether they are settled by X.
        finite: `ensure_all_finite` of scikit-learn.
        keep: see `tacit.check.reading`.

    Raises:
        InvalidInput: X is no table of numbers.
    """
    try:
        with check.reading("X", "a table of numbers", keep=keep):
            return validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)  # type: ignore[return-value]
    except InvalidInput:
        if names := text_columns(X):
            told = check.Told(f"texts in columns {listed(names)}")
            raise check.fail("X", "a table of numbers", told, _ENCODE) from None
        raise


def text_columns(X: Any) -> list[object]:
    """Names, or numbers, of the columns of X that hold something else than numbers; no cell leaves it."""
    frame = hasattr(X, "columns") and hasattr(X, "__getitem__")
    try:
        table = X if frame else np.asarray(X, dtype=object)
        names = list(X.columns) if frame else list(range(table.shape[1]))
    except Exception:
        # What no table can be made of has no columns; another package's message may quote it.
        return []
    return [name for name in names if not _is_numeric(table[name] if frame else table[:, name])]


def _is_numeric(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except Exception:
        # Objects of the caller raise what they like.
        return False
    return True


def indices_of(y: Array, classes: Sequence[object] | Array | None, *, strict: bool) -> tuple[Array, Array]:
    """Classes in ascending order and the index of each label; undeclared classes are read from y, which is a leak.

    Which of the declared classes occur decides nothing: an error would tell neighbours apart with certainty.

    Raises:
        InvalidInput: a label is outside the classes, or there is one class only.
    """
    with check.reading("y", "labels that can be compared", keep=QUOTES_NOTHING):
        found = np.unique(y)
        labels = found.tolist()
        hash(tuple(labels))
    if classes is None:
        report("classes", "Pass classes=[...] from public knowledge.", strict=strict, stacklevel=6)
        known = found
    else:
        given = list(classes)
        known = np.unique(np.asarray(given))
        check.that(len(known) == len(given), "classes", "a list of different labels", given)
    if len(known) < 2:
        only = known.tolist() if classes is not None else check.private_values(known.tolist())
        raise check.fail("classes", "at least two", only, "A model of one class learns nothing.")
    unknown = [label for label in labels if label not in set(known.tolist())]
    if unknown:
        # Ten classes are enough to recognise a wrong column.
        rule = f"labels of the declared classes {known.tolist()[:10]}"
        hint = "Pass every label that can occur as classes."
        raise check.fail("y", rule, check.private_values(unknown), hint)
    return known, np.searchsorted(known, y)


_BY_SHAPE = frozenset(
    {"PolynomialFeatures", "GaussianRandomProjection", "SparseRandomProjection", "RBFSampler", "PolynomialCountSketch"}
)
"""Transformers of scikit-learn whose fit reads nothing but the number of rows and columns."""
_DECLARED = frozenset({"OneHotEncoder", "OrdinalEncoder"})
"""Those that read nothing where their `categories` are given."""

_FITTING = ("fit", "fit_transform", "fit_predict", "_fit")  # methods of Pipeline that fit its steps


def unpaid_steps() -> tuple[str, ...]:
    """Names of the steps before the estimator that is being fitted in a pipeline which read the data unpaid.

    Paying are the private transformers of tacit, harmless are those that treat
    every row by itself (tested on rows of random numbers for a `FunctionTransformer`) and those with declared values.
    What was done to the data before the pipeline cannot be seen.
    """
    return tuple(dict.fromkeys(name for step, part in _steps() for name in _unpaid(step, part)))


def declared_steps() -> tuple[str, ...]:
    """The sentences by which the steps before that estimator declare features of `tacit.features` public."""
    return tuple(dict.fromkeys(each for _, part in _steps() for each in _declarations(part)))


def _declarations(part: Any) -> Iterator[str]:
    if type(part).__module__.startswith("tacit.features."):
        yield part.sentence
    for _, each in _parts(part) or ():
        yield from _declarations(each)


def _steps() -> list[tuple[str, Any]]:
    """The steps before the estimator that is being fitted in a pipeline, which is found among the callers."""
    frame = inspect.currentframe()
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    try:
        while frame is not None:
            caller = frame.f_locals.get("self")
            stage = frame.f_code.co_name
            if isinstance(caller, Pipeline) and id(caller) not in seen and stage in _FITTING:
                seen.add(id(caller))  # Its innermost frame knows which step is being fitted.
                running = frame.f_locals.get("step_idx") if stage == "_fit" else None
                steps = caller.steps[: len(caller.steps) - 1 if running is None else running]
                # Steps after a perturbation see records as it made them.
                found += takewhile(lambda step: type(step[1]).__name__ != "InputPerturbation", steps)
            frame = frame.f_back
    finally:
        del frame
    return found


def warn_of(steps: tuple[str, ...]) -> None:
    """Warn that `steps` read private data without paying."""
    if steps:
        names = ", ".join(steps)
        warnings.warn(
            f"the pipeline reads private data without paying in {names}; every number is only claimed. Use "
            "PublicScaler, PublicOneHot, PublicImputer or PublicTable with declared constants, or PrivateScaler.",
            PrivacyWarning,
            stacklevel=2,
        )


def _unpaid(name: str, part: Any) -> Iterator[str]:
    """`name` with its class if the transformer reads the data, or those of its parts that do."""
    if part is None or isinstance(part, str):
        return
    parts = _parts(part)
    if parts is not None:
        for inner, each in parts:
            yield from _unpaid(f"{name}.{inner}", each)
    elif not _harmless(part):
        yield f"{name} ({type(part).__name__})"


def _parts(part: Any) -> list[tuple[str, Any]] | None:
    for attribute in ("steps", "transformer_list", "transformers"):
        listed = getattr(part, attribute, None)
        if isinstance(listed, list):
            return [(each[0], each[1]) for each in listed]
    return None


def _harmless(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.startswith("tacit."):
        return True  # Its private transformers pay, the others read declared values alone.
    if not kind.__module__.startswith("sklearn."):
        return False
    if isinstance(part, FunctionTransformer):
        return _row_by_row(part)
    if kind.__name__ in _DECLARED:
        return not isinstance(part.categories, str)
    return kind.__name__ in _BY_SHAPE or (isinstance(part, BaseEstimator) and not get_tags(part).requires_fit)


def _row_by_row(part: FunctionTransformer) -> bool:
    """Whether rows of random numbers are transformed alike whatever rows they stand among."""
    random = np.random.default_rng()
    rows = random.normal(size=(6, 5))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = np.asarray(part.transform(rows))
            half = np.asarray(part.transform(np.concatenate([rows[:3], random.normal(size=(2, 5)) * 100])))
    except Exception:  # A function of the user's may need other columns than these.
        return False
    return whole.shape[0] == 6 and half.shape[0] == 5 and np.allclose(whole[:3], half[:3], rtol=1e-9, equal_nan=True)
