"""A script written for Opacus: only the import of PrivacyEngine has changed."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from tacit.opacus import PrivacyEngine

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
train_set = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
train_loader = torch.utils.data.DataLoader(train_set, batch_size=256, shuffle=True)

model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
criterion = nn.CrossEntropyLoss()

privacy_engine = PrivacyEngine()
model, optimizer, train_loader = privacy_engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=train_loader,
    target_epsilon=3.0,
    target_delta=1e-4,
    epochs=2,
    max_grad_norm=1.0,
)
for _epoch in range(2):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

print(f"epsilon = {privacy_engine.get_epsilon(delta=1e-4):.2f}")
