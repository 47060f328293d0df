"""The neural collaborative filter of Bu et al. 2020 for MovieLens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit import check
from tacit.models.start import embedding, glorot


class Recommender(nn.Module):
    """Pairs of user and item number, int64 (batch, 2), to logits of the stars, (batch, classes).

    Dense([u * v, u', v']) for vectors u, v of `product_width` and u', v' of `width` of user and item.
    """

    def __init__(self, users: int, items: int, classes: int = 5, *, product_width: int = 5, width: int = 10):
        super().__init__()
        check.count("users", users)
        check.count("items", items)
        check.count("product_width", product_width)
        check.count("width", width)
        self.product_user, self.product_item = embedding(users, product_width), embedding(items, product_width)
        self.user, self.item = embedding(users, width), embedding(items, width)
        self.head = glorot(nn.Linear(product_width + 2 * width, check.count("classes", classes)))

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = pairs[:, 0], pairs[:, 1]
        product = self.product_user(user) * self.product_item(item)
        return self.head(torch.cat([product, self.user(user), self.item(item)], dim=1))
