"""Compose mechanisms and compare accountants: the privacy loss distribution, Renyi divergences, the CLT."""

import tacit

# DP-SGD for 10 epochs of 50,000 records in Poisson batches of 256, then one Laplace count.
run = tacit.Gaussian(1.0).poisson(256 / 50_000) * 1953 + tacit.Laplace(10.0)

curve = tacit.accountant("pld")(run)
epsilon = curve.epsilon(1e-5)
print(f"exact: {epsilon.lower:.5f} <= epsilon <= {epsilon.upper:.5f} at delta = 1e-5")
print(f"an attack's advantage is at most {curve.advantage().upper:.3f}")
print(f"its true-positive rate at a false-positive rate of 1 % is at most {curve.tpr(0.01).upper:.3f}")

account = tacit.account(tacit.Ledger.of(run), delta=1e-5)
for answer in account.results:
    print(f"{answer.tradeoff.source:>22}  {answer.epsilon:8.3f}  {answer.tradeoff.standing.value}")
for name, why in account.refused:
    print(f"{name:>22}  {why}")
