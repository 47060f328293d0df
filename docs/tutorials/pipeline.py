# %% [markdown]
# # A private scikit-learn pipeline, tuned on a budget
#
# You fit a private logistic regression in a pipeline and search its settings. The search looks at the data too, so
# the budget has to cover all of it.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from tacit.erm import DPLogisticRegression, PublicScaler
from tacit.tuning import PrivateSearchCV

table = load_breast_cancer()
x, x_test, y, y_test = train_test_split(table.data[:, :10], table.target, random_state=0)
largest = np.array([40, 50, 250, 3000, 0.3, 0.5, 0.5, 0.3, 0.5, 0.2])  # what the columns can be, not what they are

# %% [markdown]
# ## One pipeline
#
# `StandardScaler` would read means from private records without paying. `PublicScaler` knows declared constants alone.
# Twenty fits of the same records cost more than one, and a warning says so: this table is public, the picture is for
# learning.


# %%
def fitted(epsilon):
    model = DPLogisticRegression(epsilon=epsilon, delta=1e-5, classes=[0, 1], data_bounds=(-1, 1))
    return make_pipeline(PublicScaler(data_bounds=(0 * largest, largest)), model).fit(x, y)


epsilons = [0.1, 0.3, 1.0, 3.0]
scores = [[fitted(epsilon).score(x_test, y_test) for _ in range(5)] for epsilon in epsilons]

# %% alt="Test accuracy of five private fits at each of four epsilons; the points spread more where epsilon is small."
figure, axes = plt.subplots(figsize=(6, 3.2))
for epsilon, found in zip(epsilons, scores, strict=True):
    axes.plot([epsilon] * len(found), found, "o", color="C0", alpha=0.6)
axes.axhline(max(np.mean(y_test), 1 - np.mean(y_test)), linestyle="--", color="grey", label="best constant answer")
axes.set(xscale="log", xlabel="epsilon", ylabel="test accuracy")
axes.legend()
plt.show()

# %% [markdown]
# ## A search that pays for itself
#
# The number of trials is secret and random, each trial has the noise that the total asks for, and only the winner
# leaves.

# %%
scaler = PublicScaler(data_bounds=(0 * largest, largest))
model = DPLogisticRegression(classes=[0, 1], data_bounds=(-1, 1))
search = PrivateSearchCV(model, {"regularization": [1e-3, 1e-2, 1e-1]}, epsilon=2.0, delta=1e-5, trials=3)
search.fit(scaler.fit_transform(x), y)
print(search.best_params_)
print(f"test accuracy {search.best_estimator_.score(scaler.transform(x_test), y_test):.2f}")
print(f"{len(search.ledger_.entries)} entry in the ledger: {search.ledger_.entries[0].note}")

# %% [markdown]
# **Try it:** put `sklearn.preprocessing.StandardScaler()` into the pipeline: a warning names it, and the fit is
# `claimed`. Next: [choose epsilon by attack risk](attack_risk.md).
