"""The text classifier of Bu et al. 2020 for IMDb: a mean of word vectors and one hidden layer."""

from __future__ import annotations

from torch import Tensor, nn

from tacit import check
from tacit.models.start import embedding, glorot

FIRST_WORD = 2


class MeanOfWords(nn.Module):
    """Word numbers (batch, places), int64 in [0, words), to logits (batch, classes).

    Embedding(words, width)-mean over the places-Dense `hidden`-ReLU-Dense. Numbers 0 and 1 are padding and the mark of
    the start, as in `tacit.data.imdb`.

    Args:
        count_padding: the mean is over all places, padding and mark among them, as in the paper's code. Otherwise
            over the places that hold a word; a record without words gets the zero vector.
    """

    def __init__(
        self, words: int = 10_000, classes: int = 2, *, width: int = 16, hidden: int = 16, count_padding: bool = False
    ):
        super().__init__()
        self.count_padding = count_padding
        self.words = embedding(check.count("words", words, minimum=2), check.count("width", width))
        body = (
            nn.Linear(width, check.count("hidden", hidden)),
            nn.ReLU(),
            nn.Linear(hidden, check.count("classes", classes)),
        )
        self.body = glorot(nn.Sequential(*body))

    def forward(self, numbers: Tensor) -> Tensor:
        vectors = self.words(numbers)
        if self.count_padding:
            return self.body(vectors.mean(dim=1))
        present = (numbers >= FIRST_WORD).to(vectors.dtype)
        total = (vectors * present.unsqueeze(-1)).sum(dim=1)
        return self.body(total / present.sum(dim=1, keepdim=True).clamp(min=1.0))
