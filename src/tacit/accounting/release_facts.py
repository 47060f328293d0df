"""Facts that hold for every release of this library by construction or declaration, whatever is released."""

from tacit.accounting.facts import FLOATING, Fact, How

_NU = (
    "nu is derived for sums in any order; it takes IEEE arithmetic, AES-CTR, and kernels that give a row the same "
    "values in every batch"
)
_EXACT = "noise is drawn and added exactly (rounded Gaussian mechanism"


def _exact(further: str) -> Fact:
    return Fact("arithmetic", How.ENFORCED, says=_EXACT + further)


def exact_steps(slack: float) -> Fact:
    """The fact `arithmetic` of training whose noise is exact and covers the rounding of clipped sums.

    Args:
        slack: nu, by which neighbouring computed sums may lie further apart than the sensitivity, as a share of it.

    Example:
        >>> exact_steps(0.004).how.value
        'enforced'
    """
    return _exact(
        f"). Rounding lets computed clipped sums of neighbouring batches lie up to nu = {slack:.2%} further apart than "
        "the clipping norm; the noise is larger by as much, so epsilon is that of its multiplier. "
        f"{_NU}. Comparisons of clipped sums with float64 can only refute it"
    )


def exact_path(slack: float) -> Fact:
    """The fact `arithmetic` of exact noise around a state that clipped sums move step by step.

    Args:
        slack: share by which states of neighbours may lie further apart in a step than the sensitivity says.

    Example:
        >>> exact_path(0.004).how.value
        'enforced'
    """
    return _exact(
        f"). Rounding lets a step of neighbouring records lie up to nu = {slack:.2%} further apart than the clipping "
        f"norm, that of the state included; the noise is larger by as much. {_NU}"
    )


EXACT_RELEASE = _exact(", discrete samplers) and covers the rounding of what it is added to")


def common_facts(*, unit: str, secure: bool, arithmetic: Fact | None = None) -> tuple[Fact, ...]:
    """Facts of any release.

    Args:
        unit: the privacy unit.
        secure: whether noise and batches come from a secure stream.
        arithmetic: how it is known that noise and sums are those of the proof; by default noise is drawn and added in
            floating point, and the guarantee is conditional on that.

    Returns:
        Declared ones are what the caller says by calling: unit, settings, ledger, public preprocessing, installed code.

    Example:
        >>> [fact.id for fact in common_facts(unit="record", secure=True) if fact.how is How.ASSUMED]
        ['arithmetic']
    """
    seeded = "a seeded stream drew noise and batches: whoever knows the seed removes the noise"
    how, stream = (How.ENFORCED, "secure stream") if secure else (How.ASSUMED, seeded)
    return (
        Fact("unit", How.DECLARED, says=f"unit {unit}"),
        Fact("settings", How.DECLARED, says="settings public"),
        Fact("randomness", how, says=stream),
        Fact("whole_ledger", How.DECLARED, says="this ledger holds every release of the run"),
        Fact("preprocessing", How.DECLARED, says="data prepared by public rules"),
        arithmetic if arithmetic is not None else Fact("arithmetic", How.ASSUMED, says=FLOATING),
        Fact("package", How.DECLARED, says="package as installed"),
    )


def one_shot_facts(*, unit: str, secure: bool, exact: bool | Fact = False) -> tuple[Fact, ...]:
    """Facts of a release that a function of this library computes from its arguments, without a loop of the user's.

    Args:
        unit: the privacy unit.
        secure: whether noise and batches come from a secure stream.
        exact: whether noise is drawn and added exactly and covers the rounding of what it is added to; or the fact
            that says how.

    Returns:
        `common_facts`, and what holds because no code of the user sees private values.

    Example:
        >>> sum(fact.how is How.ENFORCED for fact in one_shot_facts(unit="record", secure=True))
        9
    """
    enforced = {
        "batches": "the function draws its own batches, if any",
        "rows": "each record is bounded by itself",
        "model_rows": "the model is a function of one record",
        "model_state": "nothing is kept between records",
        "loss_rows": "the loss is a sum of terms of one record each",
        "numbers_read": "no number is read before noise is added",
        "released": "the function returns noisy values and the ledger",
        "one_process": "one process computes the release",
    }
    own = (Fact(name, How.ENFORCED, says=says) for name, says in enforced.items())
    arithmetic = exact if isinstance(exact, Fact) else EXACT_RELEASE if exact else None
    return (*own, *common_facts(unit=unit, secure=secure, arithmetic=arithmetic))
