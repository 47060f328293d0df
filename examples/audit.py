"""Attack a trained model by membership inference and set what it reached beside what is proven."""

import numpy as np
import torch
from sklearn.datasets import load_digits

import tacit
from tacit.attacks import LossThreshold
from tacit.audit import audit_scores

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = (inputs / 16).astype(np.float32)[:600], labels[:600]
members, others = (inputs[:300], labels[:300]), (inputs[300:], labels[300:])

network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
done = tacit.fit(
    network,
    torch.tensor(members[0]),
    torch.tensor(members[1]),
    loss=lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none"),
    optimizer=torch.optim.SGD(network.parameters(), lr=0.5),
    clip_norm=1.0,
    noise_multiplier=0.8,
    batch_size=30,
    epochs=20,
)


def predict(batch):
    """Return class probabilities: all that the attack gets to see."""
    with torch.no_grad():
        return network(torch.as_tensor(batch)).softmax(1).double().numpy()


scores = LossThreshold()(predict, members=members, non_members=others)
found = audit_scores(scores, delta=1e-4)
proven = tacit.accountant("pld")(done.ledger)
print(f"attack:  epsilon >= {found.epsilon_lower:.3f} with 95 % confidence")
print(f"theorem: epsilon <= {proven.epsilon(1e-4).upper:.3f}")
