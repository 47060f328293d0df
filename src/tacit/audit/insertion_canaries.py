"""Insertion canaries for language models: random token sequences, each trained on by its own fair coin.

canaries = InsertionCanaries(500, length=128, vocabulary=256)
train privately on the texts and on canaries.records(), canaries.labels()
found = canaries.audit(canaries.losses(model), ledger=ledger, delta=1e-5)

Audits of scores that somebody else's attack gave to somebody else's model, against a claim.
"""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import accounting, check
from tacit.accounting import Accountant, Ledger
from tacit.attacks import Scores
from tacit.attacks.base import vector
from tacit.audit.canaries import CanaryAudit
from tacit.audit.one_run_audit import audit_one_run, audit_one_run_curve
from tacit.audit.run import REFUTED_AT, Report, Trials, audit_scores
from tacit.errors import InvalidInput
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation
from tacit.tradeoff import TradeOff

UNDECLARED = "every score is of a training run of its own, or each record was in or out by its own fair coin"
"""What makes scores a test of a claim; nothing in them shows it."""


def audit_foreign_scores(
    scores: Scores,
    *,
    delta: float,
    claim: TradeOff | None = None,
    trials: Trials | str = Trials.RECORDS,
    coins: bool = False,
    confidence: float = 0.95,
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Report:
    """`band`, with coins `one_run` and `one_run_curve` at `confidence`, and the verdict on `claim` at 99.9 % together.

    Records of one model are no independent trials, and members may differ from non-members in more than membership. So
    there is a verdict only where one of both is declared: by `band`, which allows every threshold, and with `coins` by
    `one_run_curve` too, each at half of the failure probability. Elsewhere the report says what would refute, and if
    what.

    Args:
        scores: of members and non-members.
        delta: in [0, 1], of the claim.
        claim: the guarantee under test, of the relation `relation`; without one nothing is refuted.
        trials: `independent`, a declaration that every score is of a training run of its own, else `records` of one
            model.
        coins: a declaration that each record was in or out by its own fair coin, as the one-run estimators need.
        confidence: of every row, in (0, 1).
        relation: between the two worlds.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> import numpy as np
        >>> found = audit_foreign_scores(Scores("x", np.arange(60.0) + 50, np.arange(60.0), 50.0), delta=1e-5)
        >>> [row["estimator"] for row in found.rows()]
        ['band']
    """
    confidence = check.confidence(confidence)
    result = audit_scores(scores, delta=delta, trials=trials, relation=relation, confidence=confidence, claim=claim)
    finders = (audit_one_run, audit_one_run_curve) if coins else ()
    findings = [find(scores, delta=delta, confidence=confidence, claim=claim) for find in finders]
    declared = coins or Trials(trials) is Trials.INDEPENDENT
    refuting = []
    if claim is not None:
        strict = {"delta": delta, "confidence": 1 - (1 - REFUTED_AT) / (2 if coins else 1), "claim": claim}
        by_counts = audit_scores(scores, trials=trials, relation=relation, **strict).refutes(claim)
        by_guesses = coins and bool(audit_one_run_curve(scores, **strict).refuted)
        refuting = [scores.attack] if declared and (by_counts or by_guesses) else []
    why = "scores of a model that was trained elsewhere"
    about = {"claim": claim, "differences": (why,), "undeclared": "" if declared else UNDECLARED}
    return Report(delta, (result,), tuple(findings), refuted_by=tuple(refuting), **about)


ATTACK = "insertion_canaries"
BLANK = 0
"""Token of a canary that is left out; no label asks for it."""
_IGNORED = -100  # label without a loss, as in `tacit.losses`
_FEWEST = 20  # fewer canaries can show no epsilon of use, and one coin for all of them is no rarity


class InsertionCanaries:
    """Random token sequences, each trained on with probability 1/2 by a coin of its own.

    `records` and `labels` have a row for every canary, whatever its coin: one that is out is blank, without a label, so
    that its loss and gradient are 0. The number of records, the sampling rate and the divisor of the noisy sum are
    therefore the same for all coins, and a blank row leaves the law of every release as it would be without it. So the
    two worlds of a coin are neighbours by adding or removing a record, by zeroing it, and by replacing it by a blank
    one: the audit tests a certificate under each of these relations.

    The coins are a secret between the training and the audit: the tokens tell nothing of them, and `repr` leaves them
    out. A pickle of the canaries, for an audit in another process than the training, tells them. Canaries replace no
    text and cost utility: they are noise among the records.

    Args:
        count: canaries, >= 20.
        length: tokens of each, >= 2, that of the texts they are trained with.
        vocabulary: number of tokens, of which all are drawn; or the identifiers to draw from, two at least.
        copies: rows of each canary, >= 1. More than one is for user-level training, where a canary is a user.
        stream: source of coins and tokens; a new `SecureStream` by default.

    Attributes:
        tokens: of every canary, in or out, int64 of shape (count, length).
        included: whether each is in, shape (count,).
        copies: rows of each canary.

    Raises:
        InvalidInput: an argument breaks its rule.

    Source: Carlini et al. 2019, "The Secret Sharer" (insertion canaries); Steinke, Nasr and Jagielski 2023, "Privacy
    Auditing with One (1) Training Run", Algorithm 1 (one coin for each).

    Example:
        >>> canaries = InsertionCanaries(40, length=8, vocabulary=100)
        >>> canaries.records().shape, canaries.labels().shape
        ((40, 8), (40, 8))
        >>> bool((canaries.labels()[~canaries.included] == -100).all())
        True
    """

    def __init__(
        self,
        count: int,
        *,
        length: int,
        vocabulary: int | Sequence[int] | NDArray[np.integer],
        copies: int = 1,
        stream: Stream | None = None,
    ):
        count = check.count("count", count, minimum=_FEWEST)
        length, self.copies = check.count("length", length, minimum=2), check.count("copies", copies)
        alphabet = _alphabet(vocabulary)
        source = stream if stream is not None else SecureStream()
        self.included: NDArray[np.bool_] = source.uniform(count) < 0.5
        drawn = np.floor(source.uniform((count, length)) * len(alphabet)).astype(np.int64)
        self.tokens: NDArray[np.int64] = alphabet[drawn]
        self.included.setflags(write=False)
        self.tokens.setflags(write=False)

    def __repr__(self) -> str:
        count, length = self.tokens.shape
        return f"InsertionCanaries({count}, length={length}, copies={self.copies})"

    def __len__(self) -> int:
        return len(self.tokens)

    def records(self) -> NDArray[np.int64]:
        """Token rows to train on beside the texts, shape (count * copies, length), blank where a canary is out."""
        return np.repeat(np.where(self.included[:, None], self.tokens, BLANK), self.copies, axis=0)

    def labels(self) -> NDArray[np.int64]:
        """Labels of `records`: the tokens, and -100 at every place where a canary is out."""
        return np.repeat(np.where(self.included[:, None], self.tokens, _IGNORED), self.copies, axis=0)

    def owners(self, first: int) -> NDArray[np.int64]:
        """User of every row of `records`, one for each canary, for user-level training.

        Args:
            first: number of the first canary's user, >= 0: one that no text has.
        """
        first = check.count("first", first, minimum=0)
        return np.repeat(np.arange(first, first + len(self)), self.copies)

    def losses(self, model: Callable[..., Any], *, batch_size: int = 64) -> NDArray[np.float64]:
        """Mean loss of the next token of every canary, in or out, shape (count,): postprocessing of the model.

        Args:
            model: module or function from tokens (batch, length) to logits (batch, length, vocabulary), or to an output
                with `logits`. A module is run in eval mode and left in the mode that it had.
            batch_size: canaries that go through the model at a time, >= 1.

        Raises:
            InvalidInput: the answer has no logits of that shape.
        """
        import torch

        from tacit import losses

        batch_size = check.count("batch_size", batch_size)
        if not callable(model):
            raise check.fail("model", "a module or function from tokens to logits", type(model).__name__)
        module = model if isinstance(model, torch.nn.Module) else torch.nn.Module()  # Without weights or effect.
        place, training = next((each.device for each in module.parameters()), None), module.training
        module.eval()
        found = []
        try:
            with torch.no_grad():
                for start in range(0, len(self), batch_size):
                    rows = torch.from_numpy(self.tokens[start : start + batch_size].copy()).to(place)
                    found.append(losses.causal_lm(_logits(model(rows)), rows, per="token").double().cpu().numpy())
        finally:
            module.train(training)
        return np.concatenate(found)

    def audit(
        self,
        losses: NDArray[np.floating] | Sequence[float],
        *,
        ledger: Ledger,
        delta: float,
        before: NDArray[np.floating] | Sequence[float] | None = None,
        guesses: Sequence[int] | None = None,
        confidence: float = 0.95,
        accountant: Accountant | str = "pld",
    ) -> CanaryAudit:
        """Lower bound on the epsilon of the run that trained on `records`, beside its certificate.

        A canary's score is minus its loss. The highest scores are guessed to be in, the lowest to be out, and the right
        guesses are counted: `audit_one_run`. Nothing is assumed of the model or of how canaries influence each other.

        Args:
            losses: of every canary under the trained model, shape (count,), as `self.losses` gives them.
            ledger: of the run, whose unit is "user" where `copies` is above 1.
            delta: in [0, 1], of the claim.
            before: losses under the public model that training began with, taken away from `losses`: a canary that was
                easy from the start tells nothing.
            guesses: numbers of guesses, fixed before the losses were seen, as in `audit_one_run`.
            confidence: of the lower bound, in (0, 1).
            accountant: of the certificate.

        Returns:
            The measured bound, the certificate, and whether the certificate is refuted at 99.9 %.

        Raises:
            InvalidInput: an argument breaks its rule, or several copies of a canary are no unit of the ledger.
            Refused: the accountant cannot answer for the ledger.
        """
        check.instance("ledger", ledger, Ledger, "the Ledger of the run")
        if self.copies > 1 and ledger.unit != "user":
            raise check.fail("copies", f"1 where the unit is a {ledger.unit}", self.copies, "Sample users, see owners.")
        score = -self._values("losses", losses)
        if before is not None:
            score = score + self._values("before", before)
        if not 0 < self.included.sum() < len(self):
            raise InvalidInput("coins must fall on both sides; got one side only. Make new canaries.")
        scores = Scores(ATTACK, score[self.included], score[~self.included], 0.0)
        claim = accounting.accountant(accountant)(ledger)
        common = {"delta": delta, "guesses": guesses}
        found = audit_one_run(scores, confidence=confidence, claim=claim, **common)
        strict = audit_one_run_curve(scores, confidence=REFUTED_AT, claim=claim, **common)
        right = Scores(ATTACK, np.ones(int(self.included.sum())), np.zeros(int((~self.included).sum())), 0.0)
        ceiling = audit_one_run(right, confidence=confidence, **common).epsilon_lower
        rates = audit_scores(scores, delta=delta, relation=ledger.relation, confidence=confidence, claim=claim)
        return CanaryAudit(found, rates, claim, ledger.unit, refuted=bool(strict.refuted), ceiling=ceiling)

    def _values(self, name: str, values: object) -> NDArray[np.float64]:
        array = vector(name, values)
        if array.shape != (len(self),):
            raise check.fail(name, f"one number for each of {len(self)} canaries", f"shape {array.shape}")
        return array


def _alphabet(vocabulary: int | Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """The tokens to draw from; raises `InvalidInput` unless they are two different identifiers at least."""
    if isinstance(vocabulary, numbers.Number | str):
        return np.arange(check.count("vocabulary", vocabulary, minimum=2), dtype=np.int64)
    with check.reading("vocabulary", "a number of tokens, or a sequence of tokens"):
        found = np.unique(np.asarray(vocabulary))
    if found.dtype.kind not in "iu" or len(found) < 2 or found[0] < 0:
        raise check.fail("vocabulary", "a number or two different tokens >= 0 at least", f"{len(found)} of them")
    return found.astype(np.int64)


def _logits(output: Any) -> Any:
    """Logits of the output of a language model."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if found is None or not hasattr(found, "dim"):
        raise check.fail("model", "from tokens to logits or an output with logits", type(output).__name__)
    return found
