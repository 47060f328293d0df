"""Private logistic regression as the last step of a scikit-learn pipeline."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tacit.erm import DPLogisticRegression

table = load_breast_cancer()
x, x_test, y, y_test = train_test_split(table.data[:, :10], table.target, random_state=0)

# Bounds are declared, from what the columns mean, and not read off the private data.
upper = [40, 50, 250, 3000, 0.3, 0.5, 0.5, 0.3, 0.5, 0.2]
scale = FunctionTransformer(lambda values: values / upper)
model = DPLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], data_bounds=(0, 1))
pipeline = make_pipeline(scale, model).fit(x, y)

print(f"test accuracy {pipeline.score(x_test, y_test):.2f}")
guarantee = pipeline[-1].guarantee_
print(f"epsilon {guarantee.epsilon(1e-5):.3f} at delta = 1e-5, {guarantee.standing.value}")
