"""One family of errors, so that callers can catch `TacitError` and the command line can print one sentence."""


class TacitError(Exception):
    """Base class of every error that tacit raises deliberately; its message is one sentence for the user."""


class InvalidInput(TacitError, ValueError):
    """An argument breaks its rule: `<name> must be <rule>; got <value>. <what to do>`."""


class Changed(InvalidInput):
    """A file of a run is not the one that was signed, or contradicts the others; the command line exits with 3.

    Args:
        file: its name.
        why: follows "it".
        rule: follows "must be".

    Example:
        >>> print(Changed("card.json", "has another SHA-256 than was signed"))
        card.json must be as the run wrote it; it has another SHA-256 than was signed. `tacit verify RUN` tells more.
    """

    def __init__(self, file: str, why: str, rule: str = "as the run wrote it"):
        super().__init__(f"{file} must be {rule}; it {why}. `tacit verify RUN` tells more.")
        self.file, self.why = file, why


class Refused(TacitError):
    """An accountant or mechanism has no sound answer; the message gives the reason."""


class NotABound(TacitError):
    """A claimed, asymptotic or Bayesian number was read as a bound."""


class BudgetExceeded(TacitError):
    """The next step would exceed the privacy budget; it was not taken."""


class MissingData(TacitError, FileNotFoundError):
    """A data file is missing, truncated or altered; the message says where tacit looked and how to get it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingExtra(TacitError, ImportError):
    """A package of an optional extra is not installed; the message names the command that installs it."""


class UnsupportedModel(TacitError):
    """A model mixes examples or holds state that differentially private training cannot cover."""


class MixesRecords(UnsupportedModel):
    """An operation between a record and its gradient follows other records of the batch.

    Attributes:
        operation: its name, such as "aten.mean".
        line: file and number of the user's line, "train.py:31"; empty where there is none.
    """

    def __init__(self, message: str, *, operation: str = "", line: str = ""):
        super().__init__(message)
        self.operation, self.line = operation, line


class NoRecordRule(MixesRecords):
    """An operation that nobody has said anything about: whether it mixes records is not known."""


class TrainingMisuse(TacitError):
    """The private trainer was used in a way that would void its accounting."""


class OptimizerMismatch(TrainingMisuse, ValueError):
    """An optimizer holds other parameters than the trainable ones of its model; a `ValueError`, as in Opacus."""


class LeakWarning(UserWarning):
    """A statistic was read from private data without a privacy cost (an error in strict mode)."""


class CodeWarning(UserWarning):
    """Code that a file names is run, because the caller trusts it."""


class UtilityWarning(UserWarning):
    """A private model that is, or is expected to be, worth no more than a constant answer."""


class PrivacyWarning(UserWarning):
    """A legal but doubtful privacy parameter, such as delta >= 1/n."""


def told(error: BaseException) -> str:
    """An error of other code as one sentence: its type and the first line of its message."""
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}." if first else f"{type(error).__name__}."


_EXTRAS = {
    "train": (
        *("torch", "safetensors", "mpmath", "sklearn", "pandas", "pyarrow", "matplotlib", "jinja2"),
        *("sqlalchemy", "starlette", "uvicorn"),
    ),
    "data": ("pooch",),
    "judge": ("flint",),
}
_EXTRA_OF = {package: extra for extra, packages in _EXTRAS.items() for package in packages}


def missing_extra(error: ImportError) -> MissingExtra | None:
    """What to install where `error` is the import of a package that an extra of tacit holds; else None.

    Example:
        >>> print(missing_extra(ModuleNotFoundError("no torch", name="torch.nn")))
        torch must be installed for this; it is not. Run pip install 'tacit[train]'.
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(package)
    if extra is None:
        return None
    return MissingExtra(f"{package} must be installed for this; it is not. Run pip install 'tacit[{extra}]'.")
