"""The models of the training benchmark, one batch for each, and what private training of them should cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tests.architectures import zoo
from tests.architectures.zoo import define_torchvision_operators
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.lora import add_lora
from tacit.models import convnet, linear, mlp

Batch = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model, a batch of `batch` examples for it, and its goals: time of the eager and compiled step, and memory.

    Goals are ratios to plain eager PyTorch on the same batch. `library` is what the model is taken from, if anything.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Batch]
    classes: int
    batch: int
    eager: float
    compiled: float
    memory: float
    library: str = ""


class Masked(nn.Linear):
    """A pruned layer: half of the weights are masked away."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.register_buffer("mask", (torch.rand(outputs, inputs) < 0.5).float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


def masked_mlp() -> nn.Module:
    return nn.Sequential(Masked(784, 300), nn.ReLU(), Masked(300, 100), nn.ReLU(), Masked(100, 10))


def adapted(**sizes: int) -> nn.Module:
    """The transformer with adapters of rank 8 beside its linear layers, and a trainable head."""
    return add_lora(Transformer(**sizes), rank=8, patterns=["blocks.*"], keep=["head"])


class Recurrent(nn.Module):
    """Word vectors, an LSTM, and a classifier of its last output."""

    def __init__(self, words: int = 5000, width: int = 32, hidden: int = 64):
        super().__init__()
        self.table, self.layer = nn.Embedding(words, width), nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layer(self.table(words))[0][:, -1])


class Bag(nn.Module):
    """Mean of word vectors, then a small classifier."""

    def __init__(self, words: int = 10000, width: int = 16):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.head = mlp(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words).mean(1))


class Ratings(nn.Module):
    """Neural collaborative filtering with the widths of Bu et al. 2020."""

    def __init__(self, users: int = 6040, items: int = 3706):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, d) for n, d in ((users, 5), (items, 5), (users, 10), (items, 10))])
        self.head = nn.Linear(25, 5)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        user, item, deep_user, deep_item = (
            table(index) for table, index in zip(self.tables, (users, items, users, items), strict=True)
        )
        return self.head(torch.cat([user * item, deep_user, deep_item], 1))


class Transformer(nn.Module):
    """Pre-norm language model that predicts one class from the mean of its positions."""

    def __init__(self, words: int = 5000, width: int = 256, layers: int = 4, heads: int = 4, length: int = 128):
        super().__init__()
        self.table, self.position = nn.Embedding(words, width), nn.Parameter(torch.zeros(1, length, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        x = self.table(words) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).mean(1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(32, after), nn.GroupNorm(32, after)])
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.skip(x))


def resnet(width: int = 64) -> nn.Module:
    """ResNet-18 with group normalisation, for 32 x 32 images; `width` is a multiple of 32."""
    blocks: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.GroupNorm(32, width), nn.ReLU()]
    for before, after in ((width, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 8 * width)):
        blocks += [Residual(before, after, 1 + (before != after)), Residual(after, after, 1)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class UNet(nn.Module):
    """Two levels of convolutions with group normalisation, joined across, and a classifier of the mean."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.first, self.down = _double(3, width), _double(width, 2 * width)
        self.low = _double(2 * width, 4 * width)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in (2 * width, width)])
        self.joined, self.last = _double(4 * width, 2 * width), _double(2 * width, width)
        self.head = nn.Conv2d(width, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        down = self.down(F.max_pool2d(first, 2))
        low = self.low(F.max_pool2d(down, 2))
        joined = self.joined(torch.cat([down, self.ups[0](low)], 1))
        return self.head(self.last(torch.cat([first, self.ups[1](joined)], 1))).mean((2, 3))


def _double(before: int, after: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs in (before, after):
        layers += [nn.Conv2d(inputs, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
    return nn.Sequential(*layers)


class Logits(nn.Module):
    """The logits of a model of transformers; of a language model, their mean over positions."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x).logits
        return logits.mean(1) if logits.dim() == 3 else logits


def hugging_face(name: str, **config: object) -> Callable[[], nn.Module]:
    """A model of transformers with random weights: two layers of width 64, four heads, no dropout."""

    def build() -> nn.Module:
        define_torchvision_operators()
        return Logits(zoo.hugging_face(name, **config)())

    return build


def vision_resnet() -> nn.Module:
    """The ResNet-18 of torchvision with group normalisation in place of batch normalisation."""
    define_torchvision_operators()
    import torchvision

    return zoo.without_batch_norm(torchvision.models.resnet18(num_classes=10, weights=None))


_TEXT = {"vocab_size": 1000, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_IMAGE = {"image_size": 32, "patch_size": 4, "num_labels": 10}
_GPT2 = {"vocab_size": 1000, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4, "use_cache": False}
_GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}


def words(high: int, length: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randint(high, (batch, length))


def values(*shape: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, *shape)


def ratings(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randint(6040, (batch,)), torch.randint(3706, (batch,))


def tiny(name: str, inputs: Callable[[int], Batch], classes: int, **config: object) -> Case:
    """A model of transformers on 16 examples."""
    return Case(hugging_face(name, **config), inputs, classes, 16, 1.3, 1.2, 1.2, "transformers")


MODELS = {
    "adult": Case(lambda: mlp(123, 2), lambda n: (torch.rand(n, 123) < 0.1).float(), 2, 256, 1.5, 0.4, 1.2),
    "logistic": Case(lambda: linear(100, 100), values(100), 100, 200, 1.25, 0.6, 1.2),
    "mlp256": Case(lambda: mlp(100, 100, hidden=(256, 256)), values(100), 100, 200, 1.25, 0.95, 1.1),
    "mlp784": Case(lambda: mlp(784, 10, hidden=(300, 100)), values(784), 10, 400, 1.3, 1.05, 1.1),
    "mlp784-masked": Case(masked_mlp, values(784), 10, 400, 1.6, 1.3, 1.1),
    "mnist": Case(convnet, values(1, 28, 28), 10, 256, 1.15, 0.75, 1.2),
    "imdb": Case(Bag, words(10000, 256), 2, 512, 1.8, 0.65, 1.2),
    "ncf": Case(Ratings, ratings, 5, 10000, 1.2, 0.45, 1.1),
    "transformer": Case(Transformer, words(5000, 128), 5000, 8, 1.3, 1.25, 1.4),
    "transformer-lora": Case(adapted, words(5000, 128), 5000, 8, 1.08, 1.05, 1.2),
    "resnet18": Case(resnet, values(3, 32, 32), 10, 8, 1.35, 1.2, 1.2),
    "resnet18-torchvision": Case(vision_resnet, values(3, 32, 32), 10, 16, 1.5, 1.2, 1.2, "torchvision"),
    "lstm": Case(Recurrent, words(5000, 40), 2, 64, 2.0, 1.5, 1.5),
    "llama": tiny("LlamaForCausalLM", words(1000, 32), 1000, **_TEXT, **_WIDTHS, use_cache=False),
    "vit": tiny("ViTForImageClassification", values(3, 32, 32), 10, **_IMAGE, **_WIDTHS),
    "unet": Case(UNet, values(3, 32, 32), 10, 16, 1.3, 1.2, 1.2),
    "bert": tiny("BertForSequenceClassification", words(1000, 32), 10, **_TEXT, **_WIDTHS, num_labels=10),
    "gpt2": tiny("GPT2LMHeadModel", words(1000, 32), 1000, **_GPT2),
}
