"""A private Bayesian classifier: predictions with uncertainty, and what they cost."""

import numpy as np

from tacit.variational import DPBayesianLogisticRegression

draw = np.random.default_rng(0)
x = draw.uniform(-1, 1, (5000, 2))
y = (x @ [1.0, -0.5] + 0.1 * draw.standard_normal(5000) > 0).astype(int)

model = DPBayesianLogisticRegression(epsilon=1.0, delta=1e-5, data_bounds=(-1, 1), classes=[0, 1]).fit(x, y)

print(f"accuracy {model.score(x, y):.2f}")
for point in ([0.9, -0.9], [0.1, 0.0]):
    print(f"P(class 1 | x = {point}) = {model.predict_proba([point])[0, 1]:.2f}")
spread = np.asarray(model.posterior_.sample(200)).std(axis=0)
print(f"posterior standard deviations {np.round(spread, 2)}")
print(f"epsilon {model.guarantee_.epsilon(1e-5):.3f}, {model.guarantee_.standing.value}")
