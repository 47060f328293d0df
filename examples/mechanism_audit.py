"""Refute a false claim: run a mechanism many times with and without one record, and bound its epsilon from below."""

import numpy as np

import tacit
from tacit.attacks import Scores
from tacit.audit import Trials, audit_scores

CLAIMED_NOISE, REAL_NOISE, RUNS = 2.0, 1.0, 20_000  # The implementation forgets a factor of two.

draw = np.random.default_rng(0)
scores = Scores(
    "output",
    members=1.0 + REAL_NOISE * draw.standard_normal(RUNS),
    non_members=REAL_NOISE * draw.standard_normal(RUNS),
    threshold=0.5,
)
claim = tacit.accountant("pld")(tacit.Gaussian(CLAIMED_NOISE))
found = audit_scores(scores, delta=1e-5, trials=Trials.INDEPENDENT, confidence=0.99, claim=claim)
print(f"claimed: mu <= {claim.mu():.3f}")
print(f"found:   mu >= {found.mu_lower:.3f} with 99 % confidence")
print("the claim is refuted" if found.refutes(claim) else "consistent with the claim")
assert found.refutes(claim)
