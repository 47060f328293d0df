"""Processor time of a whole small run, start included, beside a script of Opacus that does the same work.

    python benchmarks/start.py [--data-dir DATA] [--epochs 3] [--rounds 3]

Both read the original Adult, train a network of one hidden layer for the same epochs at the same noise, clip, rate and
batch size, account for it, test it, and attack it by its losses. `tacit train` besides trains without privacy, runs
canaries and a broken copy for their power, draws certified curves, probes, monitors, and writes a ledger, a card and a
model that loads. Rounds alternate; the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SCRIPT = """
import sys
import numpy as np
import pandas as pd
import torch
from opacus import PrivacyEngine
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

folder, epochs = sys.argv[1], int(sys.argv[2])
frames = [pd.read_csv(f"{folder}/adult/{name}", header=None, skipinitialspace=True, skiprows=skip,
                      na_values="?").dropna()
          for name, skip in (("adult.data", 0), ("adult.test", 1))]
cut, whole = len(frames[0]), pd.concat(frames)
labels = torch.tensor(whole[14].str.startswith(">").to_numpy().astype("int64"))
numbers = whole.select_dtypes("number")
table = pd.concat([(numbers - numbers.min()) / (numbers.max() - numbers.min()),
                   pd.get_dummies(whole.drop(columns=[14]).select_dtypes(exclude="number"))], axis=1)
x = torch.tensor(table.to_numpy(dtype="float32"))
train, test = TensorDataset(x[:cut], labels[:cut]), (x[cut:], labels[cut:])
model = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.15)
engine = PrivacyEngine(secure_mode=False)
model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=DataLoader(train, 256),
                                               noise_multiplier=0.55, max_grad_norm=1.0)
loss = nn.CrossEntropyLoss()
for _ in range(epochs):
    for a, b in loader:
        optimizer.zero_grad()
        loss(model(a), b).backward()
        optimizer.step()
print("epsilon", engine.get_epsilon(1e-5))
model.eval()
each = nn.CrossEntropyLoss(reduction="none")
with torch.no_grad():
    print("accuracy", (model(test[0]).argmax(1) == test[1]).float().mean().item())
    inside, outside = each(model(x[:cut]), labels[:cut]), each(model(test[0]), test[1])
scores = np.concatenate([-inside.numpy(), -outside.numpy()])
members = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
print("attack", roc_auc_score(members, scores))
"""


def processor_seconds(command: list[str]) -> float:
    """User and system time of `command` and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "peer.py"
        script.write_text(textwrap.dedent(SCRIPT))
        epochs = str(options.epochs)
        ours = [sys.executable, "-m", "tacit", "train", "adult", "--recipe", "paper", "--epochs", epochs]
        ours += ["--data-dir", options.data_dir]
        times: dict[str, list[float]] = {"tacit train": [], "script of Opacus": []}
        for number in range(options.rounds):
            times["tacit train"].append(processor_seconds([*ours, "--out", f"{folder}/{number}"]))
            times["script of Opacus"].append(processor_seconds([sys.executable, str(script), options.data_dir, epochs]))
        for name, found in times.items():
            print(f"{name:20s} {statistics.median(found):6.2f} s")
        ratios = [mine / theirs for mine, theirs in zip(*times.values(), strict=True)]
        print(f"{'ratio':20s} {statistics.median(ratios):6.2f}")


if __name__ == "__main__":
    main()
