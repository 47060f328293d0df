"""A small decoder on IMDb reviews at epsilon 8: perplexity beside training without privacy, audit beside certificate.

    python -m benchmarks.language_model run --data-dir DATA [--quick] [--out FILE]
    python -m benchmarks.language_model show

The model reads bytes, so that no vocabulary comes from private text. The official training reviews are declared public:
they pretrain a base and measure every model. Most of the test reviews are private. Each arm trains on the first bytes
of a private review and on insertion canaries: all weights of the base; LoRA beside its frozen weights; LoRA on several
windows of each review, which are clipped together, so that the review is a user with many texts; and all weights on few
reviews, each seen often. Every arm is trained without privacy too. `--stand-in` takes public reviews in place of the
private ones, to choose settings by. `run` stores benchmarks/results/language_model.json, `show` prints the tables of
docs/language_models.md and draws its picture from there.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tacit
from benchmarks.language_model_page import show
from tacit.accounting import Ledger
from tacit.audit import CanaryAudit, InsertionCanaries
from tacit.data.published import source
from tacit.data.words import reviews
from tacit.lora import add_lora
from tacit.losses import IGNORED, causal_lm
from tacit.sampling import GroupedPoissonSampling, PoissonSampling
from tacit.serialization import plain_values, write_text

RESULTS = Path(__file__).parent / "results" / "language_model.json"
BYTES, DELTA, EPSILON = 256, 1e-5, 8.0
RARE = range(128, 256)  # bytes of canaries: hardly any review has them


@dataclass(frozen=True)
class Settings:
    """Sizes and rates of the journey; `--quick` shrinks the sizes."""

    length: int = 64
    width: int = 96
    layers: int = 2
    heads: int = 4
    public: int = 20_000
    private: int = 20_000
    held_out: int = 2_000
    windows: int = 4
    canaries: int = 400
    batch_size: int = 128
    users: int = 32
    few: int = 1_000
    few_batch_size: int = 128
    pretraining: int = 300
    steps: int = 200
    clip_norm: float = 0.1
    rank: int = 8


QUICK = Settings(
    length=16, width=16, layers=1, heads=2, public=120, private=120, held_out=50, windows=2, canaries=40,
    batch_size=20, users=10, few=60, few_batch_size=10, pretraining=3, steps=3, rank=2,
)  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """What is trained: which weights, at which learning rates, on how many reviews, and what the privacy unit is.

    Few reviews are seen often, so that a model without privacy remembers them, and canaries can show something.
    """

    name: str
    lora: bool
    rate: float
    private_rate: float
    by_user: bool = False
    few: bool = False


ARMS = (
    Arm("all weights", lora=False, rate=1e-3, private_rate=5e-4),
    Arm("LoRA", lora=True, rate=5e-3, private_rate=2e-3),
    Arm("LoRA, windows of a review", lora=True, rate=5e-3, private_rate=2e-3, by_user=True),
    Arm("all weights, few reviews", lora=False, rate=2e-3, private_rate=5e-4, few=True),
)


class Decoder(nn.Module):
    """A causal transformer over bytes: tokens (batch, T) to logits (batch, T, 256)."""

    def __init__(self, settings: Settings):
        super().__init__()
        width = settings.width
        self.embed = nn.Embedding(BYTES, width)
        self.position = nn.Parameter(0.02 * torch.randn(settings.length, width))
        self.blocks = nn.Sequential(*(Block(width, settings.heads) for _ in range(settings.layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next byte at every place."""
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.position)))


class Block(nn.Module):
    """Causal attention and a network of two layers, each added to its input."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the shape of x."""
        parts = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).movedim(-2, -4).unbind(-2)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.movedim(-3, -2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.second(x))))


@dataclass(frozen=True)
class Texts:
    """Bytes of reviews: public and held-out ones, shape (n, length), and windows of private ones with their review."""

    public: Tensor
    held_out: Tensor
    windows: Tensor
    review: np.ndarray

    @property
    def private(self) -> Tensor:
        """The first window of each private review."""
        return self.windows[np.unique(self.review, return_index=True)[1]]


def texts(settings: Settings, data_dir: Path | None, stand_in: bool) -> Texts:
    """The reviews in an order of their own; those of `stand_in` are all public. Without a folder, made-up ones."""
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for part, _, text in (
        made_up() if data_dir is None else reviews(source("imdb").files[0].content(data_dir, dataset="imdb"))
    ):
        parts[part].append(text)
    draw = np.random.default_rng(0)
    parts = {part: [of[row] for row in draw.permutation(len(of))] for part, of in parts.items()}
    public, held_out = settings.public, settings.held_out
    public = public // 4 if stand_in else public
    private = (parts["train"][public + held_out :] if stand_in else parts["test"])[: settings.private]
    windows = [coded(text, settings.length, settings.windows) for text in private]
    return Texts(
        torch.cat([coded(text, settings.length, 1) for text in parts["train"][:public]]),
        torch.cat([coded(text, settings.length, 1) for text in parts["train"][public : public + held_out]]),
        torch.cat(windows),
        np.repeat(np.arange(len(windows)), [len(of) for of in windows]),
    )


def coded(text: str, length: int, windows: int) -> Tensor:
    """The first windows of a text as bytes, (1 to `windows`, length), 0 after its end."""
    found = text.replace("<br />", " ").encode("utf-8")[: windows * length].replace(b"\0", b" ") or b" "
    rows = math.ceil(len(found) / length)
    return torch.from_numpy(np.frombuffer(found.ljust(rows * length, b"\0"), np.uint8).astype(np.int64)).view(rows, -1)


def made_up() -> list[tuple[str, int, str]]:
    """A few hundred texts of random words, for `--quick`."""
    draw, words = np.random.default_rng(0), ("a", "film", "good", "bad", "was", "it", "and", "not", "seen")
    return [(part, 1, " ".join(draw.choice(words, 12))) for part in ("train", "test") for _ in range(250)]


def labels_of(tokens: Tensor) -> Tensor:
    """The tokens, and no label after the end of a text."""
    return torch.where(tokens == 0, IGNORED, tokens)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [weights for weights in model.parameters() if weights.requires_grad]


def batches(tokens: Tensor, size: int, steps: int) -> Any:
    """Random rows for training without privacy."""
    draw = torch.Generator().manual_seed(0)
    return (torch.randint(0, len(tokens), (size,), generator=draw) for _ in range(steps))


def train_plainly(model: nn.Module, tokens: Tensor, labels: Tensor, rate: float, size: int, steps: int) -> nn.Module:
    """The model trained without privacy, in place."""
    optimizer = torch.optim.Adam(trainable(model), lr=rate)
    for rows in batches(tokens, size, steps):
        optimizer.zero_grad()
        causal_lm(model(tokens[rows]), labels[rows]).mean().backward()
        optimizer.step()
    return model


def rows_of(arm: Arm, settings: Settings) -> int:
    """Rows of a batch."""
    return settings.few_batch_size if arm.few else settings.batch_size


def train_privately(
    model: nn.Module, records: tuple[Tensor, Tensor], arm: Arm, settings: Settings, owners: np.ndarray | None
) -> Ledger:
    """The ledger of training the model in place at the target."""
    return tacit.fit(
        model,
        *records,
        loss=causal_lm,
        optimizer=torch.optim.Adam(trainable(model), lr=arm.private_rate),
        clip_norm=settings.clip_norm,
        target=tacit.Epsilon(EPSILON, delta=DELTA),
        batch_size=settings.users if arm.by_user else rows_of(arm, settings),
        steps=settings.steps,
        sampling=PoissonSampling() if owners is None else GroupedPoissonSampling(owners),
        engine="eager",
    ).ledger


def bits_per_byte(model: nn.Module, tokens: Tensor) -> float:
    """Cross-entropy of held-out public text in bits, a mean over its bytes; the perplexity is 2 to this power."""
    labels = labels_of(tokens)
    model.eval()
    with torch.no_grad():
        losses = [causal_lm(model(x), y).double().sum() * x.shape[1] for x, y in _pieces(tokens, labels)]
    model.train()
    return float(sum(losses)) / int((labels[:, 1:] != IGNORED).sum()) / math.log(2)


def _pieces(*parts: Tensor) -> Any:
    return zip(*(part.split(256) for part in parts), strict=True)


def measured(arm: Arm, base: nn.Module, found: Texts, settings: Settings) -> list[dict[str, Any]]:
    """The rows of one arm: private, and without privacy, both audited by the same canaries."""
    tokens = found.windows if arm.by_user else found.private[: settings.few if arm.few else None]
    canaries = InsertionCanaries(
        settings.canaries, length=settings.length, vocabulary=RARE, copies=settings.windows if arm.by_user else 1
    )
    rows = torch.cat([tokens, torch.from_numpy(canaries.records())])
    labels = torch.cat([labels_of(tokens), torch.from_numpy(canaries.labels())])
    owners = np.concatenate([found.review, canaries.owners(int(found.review[-1]) + 1)]) if arm.by_user else None
    start = copy.deepcopy(base)
    if arm.lora:
        add_lora(start, rank=settings.rank, patterns=["*.qkv", "*.out", "*.up", "*.down"])
    before, model = canaries.losses(start), copy.deepcopy(start)
    began = time.process_time()
    ledger = train_privately(model, (rows, labels), arm, settings, owners)
    seconds = time.process_time() - began
    common = {"arm": arm.name, "unit": "all windows of a review" if arm.by_user else "review", "records": len(tokens)}
    common |= {"trained_weights": sum(weights.numel() for weights in trainable(start))}
    (step, _), *_ = ledger.mechanism.steps
    row = {**common, "epsilon": EPSILON, "bits_per_byte": bits_per_byte(model, found.held_out), "seconds": seconds}
    row |= {"mechanism": str(step), "standing": ledger.standing.value}
    row |= {"audit": audited(canaries.audit(canaries.losses(model), ledger=ledger, delta=DELTA, before=before))}
    print(row | {"audit": row["audit"]["statement"]}, flush=True)
    began = time.process_time()
    model = train_plainly(copy.deepcopy(start), rows, labels, arm.rate, rows_of(arm, settings), settings.steps)
    other = {**common, "epsilon": None, "bits_per_byte": bits_per_byte(model, found.held_out)}
    other |= {"seconds": time.process_time() - began}
    other |= {"audit": audited(canaries.audit(canaries.losses(model), ledger=ledger, delta=DELTA, before=before))}
    print(other | {"audit": other["audit"]["statement"]}, flush=True)
    return [row, other]


def audited(found: CanaryAudit) -> dict[str, Any]:
    """Plain numbers of an audit, with what its picture is drawn from."""
    alpha = np.linspace(0.0, 1.0, 41)
    kept = np.unique(np.linspace(0, len(found.rates.fpr) - 1, 61).astype(int))
    return {
        "statement": found.statement,
        "epsilon_lower": found.finding.epsilon_lower,
        "confidence": found.finding.confidence,
        "ceiling": found.ceiling,
        "certified": float(found.certified),
        "refuted": found.refuted,
        "certificate": {"alpha": alpha.round(3).tolist(), "beta": found.claim.curve.beta(alpha).round(5).tolist()},
        "rates": {"fpr": found.rates.fpr[kept].round(4).tolist(), "tpr": found.rates.tpr[kept].round(4).tolist()},
        "area": float(np.trapezoid(found.rates.tpr, found.rates.fpr)),
    }


def kept(out: Path, rows: list[dict[str, Any]], arms: tuple[Arm, ...]) -> list[dict[str, Any]]:
    """Stored rows of the arms that are not measured again; they must be of the same base."""
    if len(arms) == len(ARMS) or not out.exists():
        return []
    stored = json.loads(out.read_text(encoding="utf-8"))["rows"]
    if any(abs(new["bits_per_byte"] - old["bits_per_byte"]) > 1e-6 for new, old in zip(rows, stored, strict=False)):
        raise SystemExit(f"the base must be that of {out.name}; got another. Measure all arms.")
    again = {arm.name for arm in arms}
    return [row for row in stored[len(rows) :] if row["arm"] not in again]


def run(settings: Settings, data_dir: Path | None, out: Path, stand_in: bool, arms: tuple[Arm, ...]) -> None:
    """Measure everything and store it."""
    torch.manual_seed(0)
    # A sum over positions has no rule of vmap in one attention kernel; the fallback is slower and right.
    warnings.filterwarnings("ignore", message="There is a performance drop")
    found, began = texts(settings, data_dir, stand_in), time.process_time()
    base = Decoder(settings)
    weights = sum(parameter.numel() for parameter in base.parameters())
    train = found.public, labels_of(found.public)
    rows = [{"arm": "random weights", "bits_per_byte": bits_per_byte(base, found.held_out)}]
    train_plainly(base, *train, 2e-3, settings.batch_size, settings.pretraining)
    rows.append({"arm": "base", "bits_per_byte": bits_per_byte(base, found.held_out)})
    others = kept(out, rows, arms)
    if not others:
        more = train_plainly(copy.deepcopy(base), *train, 1e-3, settings.batch_size, settings.steps)
        name = "base, trained on public reviews again"
        rows.append({"arm": name, "bits_per_byte": bits_per_byte(more, found.held_out)})
    rows += others
    print(*(row for row in rows if "audit" not in row), sep="\n", flush=True)
    stored = {"settings": asdict(settings), "delta": DELTA, "weights": weights}
    for arm in arms:
        rows += measured(arm, base, found, settings)
        stored |= {"arms": [asdict(arm) for arm in ARMS], "rows": rows}
        write_text(out, json.dumps(plain_values(stored), indent=1) + "\n")
    print(f"{time.process_time() - began:.0f} CPU seconds")


def main(given: list[str] | None = None) -> None:
    """Measure, or print and draw what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--quick", action="store_true", help="seconds, on made-up texts")
    parser.add_argument("--stand-in", action="store_true", help="public reviews in place of the private ones")
    parser.add_argument("--arms", nargs="+", choices=[arm.name for arm in ARMS], default=[arm.name for arm in ARMS])
    parser.add_argument("--rate", type=float, help="private learning rate in place of that of the arms")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(given)
    if chosen.what == "show":
        show(chosen.out)
        return
    if not chosen.quick and chosen.data_dir is None:
        parser.error("--data-dir must name the folder of the original files, or give --quick")
    arms = tuple(arm for arm in ARMS if arm.name in chosen.arms)
    if chosen.rate is not None:
        arms = tuple(replace(arm, private_rate=chosen.rate) for arm in arms)
    folder = None if chosen.quick else chosen.data_dir
    run(QUICK if chosen.quick else Settings(), folder, chosen.out, chosen.stand_in, arms)


if __name__ == "__main__":
    main()
