"""The end of a run in at most six lines: what is guaranteed, what was found, and what was taken as public."""

from __future__ import annotations

from collections.abc import Iterator

from tacit.reports import words
from tacit.reports.card import Card

_PUBLIC = "Taken as public: "


def summary(card: Card) -> list[str]:
    """Epsilon with standing and delta, the test result against the constant answer, the strongest attack, and the rest.

    Args:
        card: of a finished run.
    """
    return list(_lines(card))


def _lines(card: Card) -> Iterator[str]:
    results = card.account.results
    if results:
        best = words.by_trust(results)[0]
        told = f"{words.guarantee(results)} at δ = {best.delta:g}, {best.tradeoff.standing.value}"
        neighbours = words.NEIGHBOURS[best.tradeoff.relation].format(unit=card.ledger.unit)
        yield f"{told}, for {neighbours} (accountant {best.tradeoff.source})."
    else:
        yield words.headline(results, card.ledger.unit)[0]
    found, nonprivate = (words.measured(card.metrics.get(each), card.measure) for each in ("test", "nonprivate_test"))
    against = words.told_against(card.metrics, card.measure)
    beside = f" ({against})" if against else ""
    yield f"{words.MEASURES[card.measure]} {found}{beside}, without privacy {nonprivate}: {card.dataset}, {card.model}."
    if said := card.held_out.get("says"):
        yield f"{said} The guarantee covers neither test results nor attacks."
    for sentence in card.ledger.assumptions:
        if sentence.startswith(_PUBLIC):
            yield sentence
    if card.leaks:
        yield words.reserve(card.leaks)
    bound, detail = words.strongest(card.audits)
    yield f"Strongest attack: {bound} {detail}."
