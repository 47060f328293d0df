"""One family of errors, so that callers can catch `TacitError` and the command line can print one sentence."""


class TacitError(Exception):
    """Base of every error that tacit raises on purpose; its message is one sentence for a person."""


class InvalidInput(TacitError, ValueError):
    """An argument breaks its rule: `<name> must be <rule>; got <value>. <what to do>`."""


class Refused(TacitError):
    """An accountant or mechanism cannot answer this question soundly, and says why instead of guessing."""


class NotABound(TacitError):
    """A claimed, asymptotic or Bayesian number was read through a property that means a bound."""


class BudgetExceeded(TacitError):
    """The next step would cross the privacy budget; it was not taken."""


class MissingData(TacitError, FileNotFoundError):
    """A data file is missing, truncated or altered; the message says where it was looked for and how to get it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnsupportedModel(TacitError):
    """A model mixes examples or holds state that differentially private training cannot cover."""


class TrainingMisuse(TacitError):
    """The private trainer was used in a way that would void its accounting."""


class LeakWarning(UserWarning):
    """Something was read from private data without being paid for (an error in strict mode)."""


class RenamedWarning(DeprecationWarning):
    """An old name was used, which is accepted for one version."""


class PrivacyWarning(UserWarning):
    """A legal but doubtful privacy parameter, such as delta >= 1/n."""


def told(error: BaseException) -> str:
    """An error of other code as one sentence: its type and the first line of what it says."""
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}." if first else f"{type(error).__name__}."
