"""`open_run`: the one reader of a run's folder, which may come from anybody: it is data and never code.

The numbers of a card against its own ledger: what it repeats is compared, what it computed is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.accounting import Ledger, account
from tacit.errors import Changed, CodeWarning, InvalidInput, PrivacyWarning, TacitError
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.reports.card import card_of_page, check_card, ledger_table
from tacit.runs import run_signature
from tacit.runs.config import Config, config_from_table
from tacit.serialization import LARGEST, json_table, json_text, table_of, write_text
from tacit.signing import Origin, code_digest, origin_of, signature_of
from tacit.standing import Standing

if TYPE_CHECKING:
    from tacit.training.execution_record import ExecutionRecord


STATED, CONSISTENT = "stated", "consistent"
"""Words about the origin of a received run's numbers, where a standing would stand: as files say; recomputed here."""
_KIND = "verified run"
_THREADS = 4096  # of any machine that a run was computed on
_FEATURES = 10**6  # that an array may have whatever the size of the model
_ODD = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError, RecursionError)


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A run whose files are bounded in size, belong together, and are those that were signed, where they were.

    Attributes:
        folder: of the run.
        state: "finished", "stopped" (it can go on) or "begun" (nothing was released).
        seal: what the signature of the folder says.
        word: what stands where a standing would: empty for an own run that is whole, else `STATED` or `CONSISTENT`.
        later: where the files came from that later commands added, such as an audit.
    """

    folder: Path
    state: str
    seal: run_signature.RunOrigin
    word: str
    _contents: Mapping[str, bytes] = field(repr=False)
    later: Mapping[str, Origin] = field(default_factory=dict)

    def table(self, name: str) -> dict[str, Any]:
        """The JSON table in the file `name`; raises `InvalidInput` where it is none or larger than any run writes."""
        check.that(name in self._contents, "RUN", f"the folder of a `tacit train`, with {name} in it", str(self.folder))
        table = table_of(name, self._contents[name], str(self.folder / name))
        run_signature.check_texts(name, table)
        return table

    def needs(self, *names: str) -> None:
        """Raise `InvalidInput` where a file is not there, as before a run is finished."""
        for name in names:
            if not self.seal.found.get(name):
                raise check.fail("RUN", f"the folder of a finished `tacit train`, with {name} in it", str(self.folder))

    @cached_property
    def ledger(self) -> Ledger:
        """What ran; of a received run, its origin is that of the run."""
        with _reading(run_signature.LEDGER):
            ledger = Ledger.from_file(self.table(run_signature.LEDGER))
        if ledger.origin.refused:
            raise Changed(run_signature.LEDGER, f"is {ledger.origin.value}")
        if self.seal.signature is not Origin.OWN and ledger.origin is Origin.OWN:
            ledger.origin = self.seal.signature
        return ledger

    @cached_property
    def own_card(self) -> dict[str, Any]:
        """The content of `card.json`, its standings at most that of the ledger; empty for an unfinished run.

        Of its guarantees, the best alone was computed anew; `card` has checked all.
        """
        if self.state != "finished":
            return {}
        card = self.table(run_signature.CARD)
        if run_signature.LEDGER not in self._contents:
            return card
        least = [Standing.weakest(Standing(row["standing"]), self.ledger.standing) for row in card["guarantees"]]
        rows = [row | {"standing": each.value} for row, each in zip(card["guarantees"], least, strict=True)]
        return card | {"guarantees": rows}

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of `card.json`; of a received run, `word` stands in place of its standings and facts.

        A received run repeats the numbers of its best standing alone: the others bound less or nothing. Raises
        `Changed` where a number is not the one that the ledger gives.
        """
        _ = self.numbers
        if not self.word or not self.own_card:
            return self.own_card
        best = best_guarantee(self.own_card).get("standing")
        rows = [row | {"standing": self.word} for row in self.own_card["guarantees"] if row["standing"] == best]
        facts = [row | {"how": self.word} for row in self.own_card.get("facts", ())]
        return self.own_card | {"guarantees": rows, "facts": facts}

    @property
    def best(self) -> dict[str, Any]:
        """The guarantee of the best standing with the smallest epsilon; empty where there is none."""
        row = best_guarantee(self.own_card)
        return row | {"standing": self.word} if row and self.word else row

    @property
    def execution(self) -> tuple[ExecutionRecord, ...]:
        """The execution records, oldest first; none where there is no such file."""
        from tacit.training.execution_record import ExecutionRecord

        return tuple(ExecutionRecord.from_table(row) for row in self._execution_rows())

    def config(self, overrides: Mapping[str, object] | None = None, *, trust_code: bool = False) -> Config:
        """The settings of the run, those of `overrides` that are not None replaced.

        A model of the user's own is code. It is accepted where this user's key signed the run with that very source,
        and otherwise only with `trust_code`; nothing is imported to find that out.

        Args:
            overrides: settings to replace.
            trust_code: accept the model's source, whatever wrote the run; its hash is shown in a `CodeWarning`.

        Raises:
            InvalidInput: the settings break a rule, or the model is code that nobody vouches for.
        """
        config = self._config(overrides or {})
        if ":" in config.model:
            self._check_code(config.model, trust_code)
        return config

    @property
    def reserve(self) -> str:
        """The sentence beside the numbers of a received run; empty for an own one."""
        if not self.word:
            return ""
        told = "its numbers are what its files say. `tacit verify RUN` recomputes them."
        if self.word == CONSISTENT:
            told = "its numbers are consistent with its ledger, from which they were recomputed here; "
            told += "no file shows that code ran."
        return f"This run is {self.seal.signature.value}: {told}"

    def warn(self) -> None:
        """Warn of a received run."""
        if self.word:
            warnings.warn(self.reserve.replace("This", "this", 1), PrivacyWarning, 3)

    @cached_property
    def numbers(self) -> list[dict[str, Any]]:
        """Every guarantee of the card beside what its ledger gives; raises `Changed` where one is another."""
        return self._numbers(self.own_card["guarantees"]) if self.own_card else []

    def mark_verified(self) -> None:
        """Keep in a file of its own, signed, that the numbers of this very received run were recomputed here."""
        files = self._sealed_files()
        signature = signature_of(_KIND, files)
        if self.word and signature is not None:
            write_text(self.folder / run_signature.VERIFIED, json_text({"files": files, "signature": signature}))

    def _numbers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Guarantees of the card, by accountant: epsilon as it is stated, and recomputed from the ledger.

        A card alone has its mechanisms, without their facts; of it, and of one of another version, whose accountants
        may have been looser, only what must be false is refused.
        """
        check.count("guarantees", len(rows), minimum=0, maximum=_MOST)
        card, found = self.own_card, []
        with _reading(run_signature.CARD):
            if run_signature.LEDGER in self._contents:
                ledger, known = self.ledger, card.get("versions", {}).get("tacit") == version("tacit")
            else:
                told = [{key: value for key, value in row.items() if key != "hash"} for row in card["mechanisms"]]
                ledger, known = Ledger.from_spec({"relation": card["relation"], "mechanisms": told}), False
            for delta in dict.fromkeys(row["delta"] for row in rows):
                asked = [(row["accountant"], row) for row in rows if row["delta"] == delta]
                answers = _answers(ledger.mechanism, ledger.relation, delta, tuple(name for name, _ in asked))
                for name, row in asked:
                    ours = answers.get(name)
                    if ours is None or not (_agree if known else _holds)(row, ours, ledger.standing):
                        # Without the number itself, which nobody should read.
                        raise Changed(run_signature.CARD, f"states another number by {name} than its ledger.json gives")
                    told = {"accountant": name, "stated": float(row["epsilon"]), "recomputed": ours["epsilon"]}
                    found.append(told)
        return found

    def _sealed_files(self) -> dict[str, str]:
        signature = run_signature.SIGNATURE
        return dict(self.seal.found) | {signature: run_signature.digest_of(self.folder / signature)}

    def _is_verified(self) -> bool:
        try:
            table = json_table(run_signature.VERIFIED, self.folder / run_signature.VERIFIED)
        except InvalidInput:
            return False
        files = table.get("files")
        return origin_of(_KIND, files, table.get("signature")) is Origin.OWN and files == self._sealed_files()

    def _execution_rows(self) -> list[Any]:
        if run_signature.EXECUTION not in self._contents:
            return []
        rows = self.table(run_signature.EXECUTION).get("records")
        return check.instance("records of execution.json", rows, list, "a list")

    def _config(self, overrides: Mapping[str, object]) -> Config:
        with _reading(run_signature.CONFIG):
            stored = self.table(run_signature.CONFIG)
            return config_from_table(stored | {key: value for key, value in overrides.items() if value is not None})

    def _check_code(self, model: str, trust_code: bool) -> None:
        """A run that came from elsewhere must not name code that is run when it is looked at."""
        from tacit.models import code_of

        files = code_of(model)
        check.that(files, "model", "a module that can be found", model)
        shown = f"{files[-1]} (sha256 {code_digest(files)})"
        if trust_code:
            warnings.warn(f"the model of this run is code that is run now: {shown}.", CodeWarning, 3)
            return
        if any(self.folder.resolve() in file.parents for file in files):
            hint = f"It is {shown}. Read it; --trust-code runs it."
            raise check.fail("model", "a module outside of the run's folder", model, hint)
        if self.seal.of(run_signature.CONFIG) is Origin.OWN and self.seal.code == code_digest(files):
            return
        same = "this user's key did not sign the run with it"
        raise InvalidInput(
            f"model must be one of tacit's own, or code that is trusted; got {model!r}: {shown}, and {same}. "
            "Read that file; --trust-code (trust_code=True) runs it."
        )

    def _check_sizes(self) -> None:
        """Refuse sizes that the model's file cannot have, before anything of them is allocated."""
        values = (self.folder / run_signature.MODEL).stat().st_size if self.seal.found.get(run_signature.MODEL) else 0
        for row in self._execution_rows():
            for name in ("threads", "max_physical_batch_size") if isinstance(row, dict) else ():
                most = _THREADS if name == "threads" else 1e12
                if row.get(name) is not None:
                    check.count(f"{name} of {run_signature.EXECUTION}", row[name], maximum=most)
        features = 1
        if run_signature.PREPROCESSING in self._contents:
            table = self.table(run_signature.PREPROCESSING)
            for size in check.instance("shape", table.get("shape"), list, "a list of counts"):
                features *= check.count("each of shape", size, maximum=max(values, _FEATURES))
            check.count("features of the model", features, maximum=max(values, _FEATURES))
            for highest in check.instance("highest", table.get("highest", []), list, "a list of numbers"):
                check.real("each of highest", highest, low=-1, high=max(values, 1))
        if run_signature.CONFIG in self._contents and (config := self._config({})).model == "mlp":
            weights = sum(a * b for a, b in pairwise([features, *config.hidden]))
            check.count("weights of the hidden layers", weights, minimum=0, maximum=max(values, 1))

    def _check(self) -> None:
        """Everything that is known of a finished run without its data; raises `InvalidInput` or `Changed`."""
        for name in self._contents:
            self.table(name)
        check_card(self.table(run_signature.CARD))
        if list(self.seal.found) != [run_signature.CARD]:
            self.needs(run_signature.LEDGER)
        with _reading(run_signature.CARD):
            if run_signature.LEDGER in self._contents:
                for name, value in json.loads(json_text(ledger_table(self.ledger))).items():
                    if name in self.own_card and self.own_card[name] != value:
                        raise Changed(run_signature.CARD, f"is not the card of its ledger.json, by its {name}")
            best = best_guarantee(self.own_card)
        self._numbers([best] if best else [])
        self._check_sizes()


def open_run(folder: str | os.PathLike[str]) -> OpenedRun:
    """The run in `folder`, the only way to read one; nothing of it is executed.

    Sizes are bounded before anything is used: bytes and depth of each JSON file, digits of numbers, characters of
    texts, threads, widths and shapes. The signature of the folder covers all files together; beyond it the card names
    every other file by its SHA-256 and the page names the card, so that no file can be replaced by that of another run.
    What the card repeats of its ledger is compared with the ledger, and its best guarantee is computed anew.

    Args:
        folder: of the run.

    Raises:
        Changed: a file is not the one that was signed, or contradicts the others.
        InvalidInput: the folder holds no run, or a file of it is none that a run writes.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in (run_signature.CONFIG, run_signature.CARD)):
        raise check.fail("RUN", f"the folder of a `tacit train`, with {run_signature.CONFIG} in it", str(folder))
    contents = dict(_contents(folder))
    found = {name: _digest(folder, name, contents) for name in run_signature.SIGNED if (folder / name).is_file()}
    seal = run_signature.origin_of_run(folder, found)
    # An own run that was killed before it signed its card goes on.
    finished = run_signature.CARD in seal.files or (run_signature.CARD in contents and seal.signature is not Origin.OWN)
    run_signature.check_seal(seal, folder, finished)
    begun = run_signature.LEDGER in contents or (folder / run_signature.CHECKPOINT).is_file()
    state = "finished" if finished else "stopped" if begun else "begun"
    later = run_signature.check_later(folder, own=seal.signature is Origin.OWN)
    run = OpenedRun(folder, state, seal, "", contents, later)
    bound = not finished or _is_bound(run)
    if finished:
        run._check()
    if seal.signature is Origin.OWN and bound:
        return run
    return OpenedRun(folder, state, seal, CONSISTENT if run._is_verified() else STATED, contents, later)


def ledger_at(path: Path) -> tuple[Ledger, str]:
    """The ledger of the run in the folder `path`, or the ledger or SPEC in a file, and `OpenedRun.word` for it.

    A ledger outside of a run's folder that states facts of a run, and that this user's key does not vouch for, is
    received as well.
    """
    run = open_run(path) if path.is_dir() else run_of(path)
    if run is not None:
        return run.ledger, run.word
    ledger = Ledger.load(path)
    return ledger, STATED if ledger.is_run and not ledger.is_evidence else ""


def run_of(path: Path) -> OpenedRun | None:
    """The run that the file `path` is part of; None for a file that lies in no run's folder."""
    return open_run(path.parent) if run_signature.in_run(path) else None


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in run_signature.TABLES:
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                yield name, file.read(LARGEST + 1)


def _digest(folder: Path, name: str, contents: Mapping[str, bytes]) -> str:
    """SHA-256 of what was read, so that the file cannot change between its check and its use."""
    content = contents.get(name)
    return run_signature.digest_of(folder / name) if content is None else hashlib.sha256(content).hexdigest()


def _is_bound(run: OpenedRun) -> bool:
    """Whether the card names all other files and its page the card; raises `Changed` where one is another."""
    digests, of_page = run.table(run_signature.CARD).get("digests"), card_of_page(run.folder / run_signature.PAGE)
    if list(run.seal.found) == [run_signature.CARD]:
        return False
    if of_page != run.seal.found[run_signature.CARD]:
        raise Changed(run_signature.CARD, f"is not the one that {run_signature.PAGE} shows")
    for name in run_signature.SIGNED:
        if name in (run_signature.CARD, run_signature.PAGE):
            continue
        if not isinstance(digests, dict) or digests.get(name, "") != run.seal.found.get(name, ""):
            raise Changed(name, f"is not the one that {run_signature.CARD} was made of")
        if name in run.seal.found and run.seal.signature is Origin.OWN and name not in run.seal.files:
            raise Changed(name, "is none of those that were signed", run_signature.OWN_KEY)
    return True


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Context in which a file of anybody's is interpreted: what it breaks is told as one sentence."""
    try:
        yield
    except TacitError:
        raise
    except _ODD as error:
        raise check.fail(name, "as a run writes it", type(error).__name__) from None


_AGREEMENT = 1e-6  # relative: sums in another order, of another processor, differ by less
_MOST = 100  # guarantees of a card, each of which takes a second at most
_COMPARED = ("epsilon", "epsilon_lower", "mu", "advantage")


def best_guarantee(card: Mapping[str, Any]) -> dict[str, Any]:
    """The guarantee of the best standing with the smallest epsilon on a card; empty where there is none."""
    order = [standing.value for standing in Standing]
    rows = [row for row in card.get("guarantees") or [] if isinstance(row, dict) and row.get("standing") in order]
    return min(rows, key=lambda row: (order.index(row["standing"]), float(row.get("epsilon", "inf"))), default={})


@lru_cache(maxsize=64)
def _answers(
    mechanism: Mechanism, relation: Relation, delta: float, accountants: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Rows of accountants by name; each reader of a run asks for the same ones."""
    # Facts that a file lacks would weaken the standing, which leaves no lower end to compare.
    answers = account(Ledger.of(mechanism, relation=relation), delta=delta, accountants=accountants).results
    return {answer.tradeoff.source: answer.row() for answer in answers}


def _agree(stated: Mapping[str, Any], ours: Mapping[str, Any], known: Standing) -> bool:
    standing = Standing.weakest(Standing(ours["standing"]), known)
    if (stated["standing"], stated.get("relation")) != (standing, ours["relation"]):
        return False
    weak = standing is not Standing.PROVEN
    kept = [name for name in _COMPARED if not (weak and name == "epsilon_lower" and stated.get(name) is None)]
    return all(_close(stated.get(name), ours[name]) for name in kept)


def _close(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(float(first), second, rel_tol=_AGREEMENT, abs_tol=1e-9)


def _holds(stated: Mapping[str, Any], ours: Mapping[str, Any], known: Standing) -> bool:
    """Whether a bound of another version is not below what is proven to leak."""
    bound = stated["standing"] in (Standing.PROVEN, Standing.CONDITIONAL) and known is not Standing.CLAIMED
    lower = ours["epsilon_lower"] or 0.0
    return not bound or float(stated["epsilon"]) >= lower * (1 - _AGREEMENT)
