"""A generative adversarial network: the discriminator, which alone sees records, is private; two optimizers."""

import torch
from torch.nn.functional import softplus

import tacit

torch.manual_seed(0)
records = torch.randn(600, 2) * torch.tensor([1.0, 0.2]) + torch.tensor([2.0, 0.0])
generator = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
discriminator = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.LeakyReLU(0.2), torch.nn.Linear(32, 1))
update = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))

private = tacit.make_private(
    discriminator,
    torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
    torch.utils.data.DataLoader(torch.utils.data.TensorDataset(records), batch_size=60),
    clip_norm=1.0,
    noise_multiplier=1.0,
    epochs=20,
)
for _ in range(20):
    for (real,) in private.loader:
        # The discriminator: one real record and one made for it belong to each loss, and are clipped together.
        # More are drawn than are used, so that the state of torch's generator does not follow the size of the batch.
        made = private.public(generator(torch.randn(600, 4))[: len(real)].detach(), "made records")
        both = private.model(torch.stack([real, made], 1)).squeeze(2)
        (softplus(-both[:, 0]) + softplus(both[:, 1])).backward()
        private.optimizer.step()
        # The generator learns from the released discriminator alone: postprocessing, whatever the number of steps.
        discriminator.requires_grad_(False)
        update.zero_grad()
        softplus(-discriminator(generator(torch.randn(60, 4)))).mean().backward()
        update.step()
        discriminator.requires_grad_(True)

sample = generator(torch.randn(1000, 4)).detach()
print(f"{private.ledger.steps} private steps, standing {private.ledger.standing.value}")
print("mean of made records:", [round(float(value), 2) for value in sample.mean(0)])
