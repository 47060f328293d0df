"""A language model of bytes: LoRA trained privately, where users own many texts, and audited by insertion canaries."""

import importlib
import inspect

import numpy as np
import torch
from torch import nn

import tacit
from tacit.audit import InsertionCanaries
from tacit.lora import add_lora
from tacit.losses import IGNORED, causal_lm
from tacit.sampling import GroupedPoissonSampling

LENGTH, STEPS, PUBLIC = 32, 40, ("ast", "inspect", "os", "random", "shutil", "statistics", "subprocess", "typing")
PRIVATE = ("calendar", "difflib", "functools", "glob", "gzip", "heapq", "locale", "pickle", "textwrap", "uuid")


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(256, 32), nn.Parameter(0.02 * torch.randn(LENGTH, 32))
        self.attend, self.up, self.head = nn.Linear(32, 96), nn.Linear(32, 64), nn.Linear(64, 256)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        x = x + nn.functional.scaled_dot_product_attention(*self.attend(x).chunk(3, -1), is_causal=True)
        return self.head(self.up(x).relu())


def texts(names):
    """Bytes of the documentation of each module's functions, labels, and the module: the user who owns them."""
    modules = [vars(importlib.import_module(name)).values() for name in names]
    found = {(user, inspect.getdoc(f) or "-") for user, of in enumerate(modules) for f in of if inspect.isfunction(f)}
    tokens = torch.tensor([list(doc.encode()[:LENGTH].ljust(LENGTH, b"\0")) for _, doc in sorted(found)])
    return tokens, tokens.where(tokens > 0, IGNORED), np.array([user for user, _ in sorted(found)])


torch.manual_seed(0)
model, (tokens, labels, _) = Decoder(), texts(PUBLIC)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(STEPS):
    optimizer.zero_grad()
    causal_lm(model(tokens), labels).mean().backward()
    optimizer.step()
model, (tokens, labels, users) = add_lora(model, rank=4, patterns=["attend", "up"]), texts(PRIVATE)
trained = [weights for weights in model.parameters() if weights.requires_grad]
canaries = InsertionCanaries(60, length=LENGTH, vocabulary=256, copies=4)  # each a user with four texts
before = canaries.losses(model)
inputs, targets = (torch.from_numpy(rows) for rows in (canaries.records(), canaries.labels()))
sampling = GroupedPoissonSampling(np.concatenate([users, canaries.owners(len(PRIVATE))]))
run = tacit.fit(
    model, torch.cat([tokens, inputs]), torch.cat([labels, targets]), loss=causal_lm, sampling=sampling, clip_norm=0.5,
    optimizer=torch.optim.Adam(trained, lr=1e-2), target=tacit.Epsilon(8.0, delta=1e-3), batch_size=20, steps=STEPS,
)  # fmt: skip
found = canaries.audit(canaries.losses(model), ledger=run.ledger, delta=1e-3, before=before)
print(f"{len(trained)} matrices trained, {run.ledger.steps} steps, one {run.ledger.unit} is protected")
print(found.statement)
