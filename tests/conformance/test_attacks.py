"""Every attack of the library through the one suite."""

import numpy as np
import pytest

from tacit.attacks import (
    ATTACKS,
    PRIVILEGED_ATTACKS,
    Attack,
    LabelOnly,
    QuantileRegression,
    References,
    RelativeMembership,
    attack_named,
    half_splits,
)
from tacit.testing import check_attack
from tacit.testing.attack import examples_of, leaky
from tacit_papers.evaluating_dp.leakage import ShadowModels


def part(examples, rows):
    return examples[0][rows], examples[1][rows]


def references(examples):
    included = half_splits(8, len(examples[1]), seed=1)
    models = [leaky(part(examples, np.flatnonzero(row)), seed) for seed, row in enumerate(included, 1)]
    return References(models, included)


def shadow_models(examples, member):
    pools = [examples_of(seed) for seed in (3, 4)]
    first, second = np.arange(240) < 120, np.arange(240) >= 120
    shadows = [(leaky(part(pool, first), 9), part(pool, first), part(pool, second)) for pool in pools]
    return ShadowModels(shadows, epochs=10)


BUILDERS = {
    "quantile_regression": lambda examples, member: QuantileRegression(examples_of(7), fpr=0.2),
    "lira_online": lambda examples, member: PRIVILEGED_ATTACKS["lira_online"](references(examples)),
    "lira_offline": lambda examples, member: PRIVILEGED_ATTACKS["lira_offline"](references(examples)),
    "rmia": lambda examples, member: RelativeMembership(references(examples), examples_of(8)),
    "label_only": lambda examples, member: LabelOnly(copies=0),
}


@pytest.mark.parametrize("name", [*ATTACKS, *sorted(set(PRIVILEGED_ATTACKS) - {"gradient_norm"})])
def test_attack(name):
    def default(examples: object, member: object) -> Attack:
        return attack_named(name)

    check_attack(BUILDERS.get(name, default))


def test_the_attack_by_attack_networks_of_the_papers():
    check_attack(shadow_models)


def test_every_privileged_attack_is_checked():
    """But the gradient norm, which asks its own callable and not the model (tests/attacks/test_black_box.py)."""
    assert set(PRIVILEGED_ATTACKS) - {"gradient_norm"} <= set(BUILDERS)
