"""Scripts in the documented style of Opacus, whose import lines alone were changed."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from tacit import PrivacyEngine, account
from tacit.accounting import Ledger
from tacit.errors import PrivacyWarning
from tacit.mechanisms import Gaussian
from tacit.opacus import BatchMemoryManager, ExponentialNoise
from tacit.standing import Standing

DELTA = 1e-4


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(found.target)


class SmallConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        return self.fc1(x.view(x.shape[0], -1))


def proven(engine):
    """What `tacit.account` says about the steps the engine took."""
    steps = engine.ledger.entries
    ledger = Ledger()
    for entry in steps:
        ledger.add(entry.mechanism, entry.steps)
    (result,) = account(ledger, delta=DELTA, accountants=["pld"]).results
    return result.epsilon


@pytest.mark.slow
def test_image_classifier(digits):
    images, labels = digits
    train_set, test_set = random_split(TensorDataset(images, labels), [1500, 297], torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, batch_size=150, shuffle=True, num_workers=0)
    test_loader = DataLoader(test_set, batch_size=100)
    torch.manual_seed(0)
    model = SmallConvolution()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    criterion = nn.CrossEntropyLoss()
    scheduler_lr = 0.9

    privacy_engine = PrivacyEngine(secure_mode=True)
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model, optimizer=optimizer, data_loader=train_loader, noise_multiplier=1.1, max_grad_norm=1.0
    )
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, scheduler_lr)

    for _epoch in range(1, 9):
        model.train()
        losses, top1 = [], []
        for _batch, (inputs, target) in enumerate(train_loader):
            optimizer.zero_grad()
            output = model(inputs)
            loss = criterion(output, target)
            preds = np.argmax(output.detach().cpu().numpy(), axis=1)
            top1.append((preds == target.numpy()).mean())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        epsilon = privacy_engine.get_epsilon(DELTA)

    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, target in test_loader:
            correct += (model(inputs).argmax(1) == target).sum().item()
    assert correct / 297 > 0.75
    assert np.mean(losses) < 1.5
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**8)
    assert len(train_loader) == 10
    (entry,) = privacy_engine.ledger.entries
    assert (entry.mechanism, entry.steps) == (Gaussian(1.1).poisson(0.1), 80)
    assert epsilon == proven(privacy_engine) == privacy_engine.accountant.get_epsilon(delta=DELTA)


class Sentences(Dataset):
    """Sentences of one of two topics: words 2..11 or 12..21, of different lengths; 0 is padding."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for label in torch.randint(2, (count,), generator=generator).tolist():
            length = int(torch.randint(3, 9, (1,), generator=generator))
            self.rows.append((torch.randint(2, 12, (length,), generator=generator) + 10 * label, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def padded_collate(batch):
    words = nn.utils.rnn.pad_sequence([row for row, _ in batch], batch_first=True)
    return words, torch.tensor([label for _, label in batch])


WARNS = pytest.mark.filterwarnings("ignore:collate_fn must make:tacit.errors.PrivacyWarning")


def collate_to_a_public_length(batch):
    words = torch.stack([nn.functional.pad(row, (0, 8 - len(row))) for row, _ in batch])
    return words, torch.tensor([label for _, label in batch])


class MeanOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(22, 8, padding_idx=0)
        self.fc = nn.Linear(8, 2)

    def forward(self, words):
        return self.fc(self.emb(words).mean(dim=1))


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(22, 8, mode="mean", padding_idx=0)
        self.fc = nn.Linear(8, 2)

    def forward(self, words):
        return self.fc(self.emb(words))


@pytest.mark.slow_cases("MeanOfWords-collate_to_a_public_length", "BagOfWords-padded_collate")
@pytest.mark.parametrize("collate", [pytest.param(padded_collate, marks=WARNS), collate_to_a_public_length])
@pytest.mark.parametrize("classifier", [MeanOfWords, BagOfWords])
def test_text_classifier(classifier, collate):
    """A long sentence that is padded to changes the others' rows: the script runs, and its epsilon is only claimed."""
    torch.manual_seed(0)
    model = classifier()
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    train_loader = DataLoader(Sentences(400), batch_size=40, collate_fn=collate, shuffle=True)
    criterion = nn.CrossEntropyLoss(reduction="mean")
    privacy_engine = PrivacyEngine(accountant="rdp")
    model, optimizer, train_loader = privacy_engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        target_epsilon=8.0,
        target_delta=DELTA,
        epochs=5,
        max_grad_norm=1.0,
    )
    for _ in range(5):
        for words, labels in train_loader:
            optimizer.zero_grad()
            criterion(model(words), labels).backward()
            optimizer.step()
    words, labels = collate(list(Sentences(400)))
    model.eval()
    assert (model(words).argmax(1) == labels).float().mean() > 0.85
    epsilon = privacy_engine.get_epsilon(DELTA)
    assert 7.9 < epsilon <= 8.0
    claimed = collate is padded_collate
    assert privacy_engine.ledger.standing is (Standing.CLAIMED if claimed else Standing.PROVEN)
    assert claimed or proven(privacy_engine) < epsilon


def test_a_collation_that_mixes_records_is_told():
    model = MeanOfWords()
    loader = DataLoader(Sentences(400), batch_size=40, collate_fn=padded_collate)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    _, _, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    with pytest.warns(PrivacyWarning, match=r"(?s)fixed, public length.*only claimed"):
        next(iter(loader))


def test_virtual_batches(digits):
    torch.manual_seed(0)
    model = SmallConvolution()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    train_loader = DataLoader(TensorDataset(*digits), batch_size=599)
    privacy_engine = PrivacyEngine()
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model, optimizer=optimizer, data_loader=train_loader, noise_multiplier=2.0, max_grad_norm=1.0
    )
    criterion = nn.CrossEntropyLoss()
    sizes, moves = [], 0
    for _ in range(3):
        with BatchMemoryManager(
            data_loader=train_loader, max_physical_batch_size=128, optimizer=optimizer
        ) as memory_safe_data_loader:
            for images, target in memory_safe_data_loader:
                before = model.fc1.weight.clone()
                optimizer.zero_grad()
                loss = criterion(model(images), target)
                loss.backward()
                optimizer.step()
                sizes.append(len(images))
                moves += int(not torch.equal(before, model.fc1.weight))
    assert max(sizes) == 128
    assert len(sizes) > 3 * 4
    assert moves == privacy_engine.ledger.steps == 9
    assert privacy_engine.get_epsilon(DELTA) == proven(privacy_engine)


def test_per_layer_clipping(digits):
    torch.manual_seed(0)
    model = SmallConvolution()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    n_layers = len([p for p in model.parameters() if p.requires_grad])
    max_grad_norm = [1.0 / np.sqrt(n_layers)] * n_layers
    privacy_engine = PrivacyEngine()
    model, optimizer, loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(*digits), batch_size=180),
        noise_multiplier=1.0,
        max_grad_norm=max_grad_norm,
        clipping="per_layer",
    )
    assert optimizer.max_grad_norm == pytest.approx(1.0)
    criterion = nn.CrossEntropyLoss()
    for _ in range(3):
        for images, target in loader:
            optimizer.zero_grad()
            criterion(model(images), target).backward()
            optimizer.step()
    assert privacy_engine.get_epsilon(DELTA) == proven(privacy_engine)
    assert privacy_engine.ledger.entries[0].mechanism == Gaussian(1.0).poisson(180 / 1797)


def test_noise_schedule(digits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    privacy_engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(*digits), batch_size=600),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    scheduler = ExponentialNoise(optimizer, gamma=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(3):
        for images, target in loader:
            optimizer.zero_grad()
            criterion(model(images), target).backward()
            optimizer.step()
        scheduler.step()
    rate = 600 / 1797
    expected = Ledger()
    for epoch in range(3):
        expected.add(Gaussian(0.9**epoch).poisson(rate), len(loader))
    (result,) = account(expected, delta=DELTA, accountants=["rdp"]).results
    assert privacy_engine.get_epsilon(DELTA) == pytest.approx(result.epsilon, rel=1e-9)


def test_ghost_clipping(digits):
    torch.manual_seed(0)
    model = SmallConvolution()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    privacy_engine = PrivacyEngine()
    model_gc, optimizer_gc, criterion_gc, train_loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(*digits), batch_size=180),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        criterion=nn.CrossEntropyLoss(),
        grad_sample_mode="ghost",
    )
    first = None
    for _ in range(4):
        for images, target in train_loader:
            optimizer_gc.zero_grad()
            loss = criterion_gc(model_gc(images), target)
            loss.backward()
            optimizer_gc.step()
            first = loss.item() if first is None else first
    assert loss.item() < first
    assert privacy_engine.ledger.steps == 4 * len(train_loader)
