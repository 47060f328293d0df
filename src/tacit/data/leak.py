"""Facts that were read from private data without being paid for: a warning, or an error in strict mode."""

import warnings

from tacit import check
from tacit.errors import LeakWarning


def report(what: str, how: str, *, strict: bool, stacklevel: int = 3) -> None:
    """Tell the caller that `what` was read from the data, and by `how` what to declare instead.

    Warns with `LeakWarning`; raises `InvalidInput` instead when `strict`.
    """
    if strict:
        raise check.fail(what, "declared as public in strict mode", "values read from the data", how)
    message = f"{what} came from private data, which no guarantee covers. {how}"
    warnings.warn(message, LeakWarning, stacklevel=stacklevel)
