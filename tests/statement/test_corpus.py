"""Two readers that share no code judge statements of real runs and changed ones; `corpus.py` judges all of them."""

import copy
import json
from functools import cache

import pytest

from tacit.statement import AuthorKey, document
from tests.statement import corpus

PART = [
    *(
        "fit",
        "fit twice",
        "fit, zero out",
        "fit, shuffled",
        "loop",
        "opacus engine",
        "objective pure",
        "output gaussian",
    ),
    *("input local", "boosted trees", "quantiles", "linear regression", "search", "variational inference"),
    *("concealed path", "posterior samples", "budget", "budget, fixed beforehand"),
]
"""Quick runs, one of each room that writes ledgers."""


@pytest.fixture(scope="module")
def key():
    return AuthorKey.new()


@pytest.fixture(scope="module")
def contents(key):
    return corpus.statements(PART, key)


@pytest.fixture(scope="module", autouse=True)
def numbers_of_each_ledger_once():
    """What the reader finds for a ledger is kept: most changes lie elsewhere in the file."""

    @cache
    def found(spec, *places):
        return exact(ledgers[spec], *places)

    def known(ledger, *places):
        spec = json.dumps(ledger.spec())
        ledgers[spec] = ledger
        return copy.deepcopy(found(spec, *map(tuple, places)))

    exact, ledgers = document.guarantee, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "guarantee", known)
        yield


def test_statements_of_real_runs_are_valid_for_both_readers(contents, key):
    for name, content in contents.items():
        first, second = corpus.words(content, key)
        assert first == "valid", name
        assert second in ("valid", "not checkable here"), name


def test_no_changed_statement_is_valid_for_either_reader(contents, key):
    """A looser bound alone passes, as not tight; what can be read in two ways is refused."""
    kinds = set()
    for name, mutant in corpus.mutants_of(contents, key, 90):
        first, second = corpus.words(mutant.content, key)
        assert first in mutant.allowed, (name, mutant.kind, first)
        assert second != "valid", (name, mutant.kind)
        assert corpus.agree(first, second), (name, mutant.kind, first, second)
        kinds.add(mutant.kind)
    assert len(kinds) >= 8
