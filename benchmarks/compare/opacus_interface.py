"""A private loop by an engine with the interface of Opacus, as Opacus and tacit.opacus have it."""

from __future__ import annotations

from typing import Any

import torch


def attached(
    engine: Any, model: Any, records: tuple[torch.Tensor, torch.Tensor], *, batch_size: int, noise_multiplier: float
) -> tuple[Any, Any, Any]:
    """Model, optimizer and loader made private, with shuffled batches of a fixed size and clipping norm 1."""
    data = torch.utils.data.TensorDataset(*records)
    return engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )


def private_step(model: Any, optimizer: Any, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """One step on one batch, of the mean loss that Opacus takes."""
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
