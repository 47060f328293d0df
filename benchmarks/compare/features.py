"""Programs that use one feature of one library each, and return what the table shows; an exception is shown too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[[], str]

NOISE, RATE, STEPS, DELTA = 1.1, 0.01, 1000, 1e-5
X = np.random.default_rng(0).uniform(0, 1, (400, 4))
Y = (X[:, 0] > 0.5).astype(int)


def _dp_event() -> Any:
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(NOISE))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


def _tacit_curve() -> Any:
    import tacit

    return tacit.accountant("pld")(tacit.Gaussian(NOISE).poisson(RATE) * STEPS)


def epsilon_tacit() -> str:
    return f"{_tacit_curve().epsilon(DELTA).upper:.4f}"


def epsilon_opacus() -> str:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(NOISE, RATE, STEPS)]
    return f"{accountant.get_epsilon(DELTA):.4f}"


def epsilon_dp_accounting() -> str:
    from dp_accounting.pld import PLDAccountant

    return f"{PLDAccountant().compose(_dp_event()).get_epsilon(DELTA):.4f}"


def epsilon_jax_privacy() -> str:
    from jax_privacy.accounting import accountants, analysis

    accountant = analysis.DpsgdTrainingAccountant(dp_accountant_config=accountants.PldAccountantConfig())
    given = analysis.DpParams(num_samples=100_000, batch_size=1000, noise_multipliers=NOISE, delta=DELTA)
    return f"{float(accountant.compute_epsilon(STEPS, given)):.4f}"


def epsilon_riskcal() -> str:
    from riskcal.accountants.ctd import CTDAccountant

    accountant = CTDAccountant()
    accountant.history = [(NOISE, RATE, STEPS)]
    return f"{accountant.get_epsilon(delta=DELTA):.4f}"


def bracket_tacit() -> str:
    answer = _tacit_curve().epsilon(DELTA)
    return f"{answer.upper - answer.lower:.1e}"


def bracket_opacus() -> str:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(NOISE, RATE, STEPS)]
    composed = accountant._get_dprv(eps_error=0.01, delta_error=DELTA / 1000)
    low, _, high = composed.compute_epsilon(DELTA, DELTA / 1000, 0.01)
    return f"{high - low:.1e}"


def bracket_dp_accounting() -> str:
    from dp_accounting.pld import privacy_loss_distribution as pld

    ends = [
        pld.from_gaussian_mechanism(NOISE, sampling_prob=RATE, pessimistic_estimate=side, use_connect_dots=side)
        .self_compose(STEPS)
        .get_epsilon_for_delta(DELTA)
        for side in (True, False)
    ]
    return f"{ends[0] - ends[1]:.1e}"


def risk_tacit() -> str:
    return f"{_tacit_curve().tpr(0.01).upper:.4f}"


def risk_riskcal() -> str:
    from riskcal.accountants.ctd import CTDAccountant

    accountant = CTDAccountant()
    accountant.history = [(NOISE, RATE, STEPS)]
    return f"{1 - float(accountant.get_beta(alpha=0.01)):.4f}"


def advantage_noise_tacit() -> str:
    from tacit import Advantage
    from tacit.calibration import noise_multiplier

    return f"{noise_multiplier(Advantage(0.1), sample_rate=RATE, steps=STEPS).value:.3f}"


def advantage_noise_riskcal() -> str:
    from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage

    return f"{find_noise_multiplier_for_advantage(advantage=0.1, sample_rate=RATE, num_steps=STEPS):.3f}"


def regression_tacit() -> str:
    from tacit.erm import DPLogisticRegression

    model = DPLogisticRegression(epsilon=1.0, delta=0, classes=[0, 1], data_bounds=(0, 1)).fit(X, Y)
    return f"runs, {model.guarantee_.standing.value}"


def regression_diffprivlib() -> str:
    from diffprivlib.models import LogisticRegression

    LogisticRegression(epsilon=1.0, data_norm=2.0).fit(X, Y)
    return "runs"


def _has(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def forest_diffprivlib() -> str:
    _has("diffprivlib.models", "RandomForestClassifier")(n_estimators=3, bounds=(0, 1), classes=[0, 1]).fit(X, Y)
    return "runs"


def clusters_diffprivlib() -> str:
    _has("diffprivlib.models", "KMeans")(2, bounds=(np.zeros(4), np.ones(4))).fit(X)
    return "runs"


def forest_tacit() -> str:
    return _missing("tacit.erm", "RandomForestClassifier", "DPRandomForestClassifier")


def clusters_tacit() -> str:
    return _missing("tacit.erm", "KMeans", "DPKMeans")


def _missing(module: str, *names: str) -> str:
    import importlib

    public = dir(importlib.import_module(module))
    return "runs" if any(name in public for name in names) else "no such class"


def banded_tacit() -> str:
    from tacit.accounting.comparison import compare

    rows = compare(1.0, records=1000, batch_size=100, epochs=1, delta=DELTA, bands=2)
    (found,) = (row.epsilon for row in rows if row.sampling == "cyclic_poisson")
    return f"runs, epsilon {found[1]:.2f}" if found else "refused"


def banded_jax_privacy() -> str:
    from jax_privacy.matrix_factorization import toeplitz

    strategy = toeplitz.optimize_banded_toeplitz(n=10, bands=2)
    return f"runs, {np.asarray(strategy).size} coefficients"


# What is shown -> library -> program; a library that is not named has no program here, which says nothing about it.
FEATURES: dict[str, dict[str, Program]] = {
    "epsilon of 1,000 sampled Gaussian steps (upper end)": {
        "tacit": epsilon_tacit,
        "opacus": epsilon_opacus,
        "dp-accounting": epsilon_dp_accounting,
        "jax-privacy": epsilon_jax_privacy,
        "riskcal": epsilon_riskcal,
    },
    "width between lower and upper end of that epsilon": {
        "tacit": bracket_tacit,
        "opacus": bracket_opacus,
        "dp-accounting": bracket_dp_accounting,
    },
    "largest TPR of an attack at FPR 1 %": {"tacit": risk_tacit, "riskcal": risk_riskcal},
    "noise for an advantage of at most 10 %": {"tacit": advantage_noise_tacit, "riskcal": advantage_noise_riskcal},
    "logistic regression, pure epsilon 1": {"tacit": regression_tacit, "diffprivlib": regression_diffprivlib},
    "private random forest": {"tacit": forest_tacit, "diffprivlib": forest_diffprivlib},
    "private k-means": {"tacit": clusters_tacit, "diffprivlib": clusters_diffprivlib},
    "banded correlated noise": {"tacit": banded_tacit, "jax-privacy": banded_jax_privacy},
}
