"""`Subject`: what a privacy statement is about; never a path or a record.

`SeenStatements`: the newest statement about each subject that this user wrote or checked.
"""

import datetime
import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.locking import writing
from tacit.serialization import json_table, json_text, texts_in, write_text
from tacit.signing import new_id
from tacit.statement import keys

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Categories of characters that act on a terminal or hide text.
_LONGEST = 2000  # characters of a text
_SEEN = "seen_statements.json"


@dataclass(frozen=True)
class Subject:
    """What a statement is about.

    Attributes:
        dataset: name of the data set.
        version: of the data, such as a date or a digest.
        facts: what is public about the data, one sentence each.
        unit: what one record is, such as "one patient".
        owner: who answers for the data.
        contact: how to reach them.
        purpose: what the release is for.
        date: of the release, as YYYY-MM-DD; today by default.
        id: of the subject, the same in every later statement about it; a new one by default.
        sequence: number of the statement about this subject, from 1.

    Raises:
        InvalidInput: the name is empty, the date is none, or a text is too long or acts on a terminal.

    Example:
        >>> Subject("digits", owner="Statistics office").sequence
        1
    """

    dataset: str
    version: str = ""
    facts: tuple[str, ...] = ()
    unit: str = ""
    owner: str = ""
    contact: str = ""
    purpose: str = ""
    date: str = ""
    id: str = field(default_factory=new_id)
    sequence: int = 1

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name not in ("sequence", "facts"):
                object.__setattr__(self, each.name, _plain(each.name, getattr(self, each.name)))
        object.__setattr__(self, "facts", tuple(_plain("each of facts", fact) for fact in self.facts))
        check.text("dataset", self.dataset)
        check.count("sequence", self.sequence)
        object.__setattr__(self, "date", self.date or datetime.date.today().isoformat())
        check.that(is_date(self.date), "date", "a date as YYYY-MM-DD", self.date)

    def about(self) -> dict[str, Any]:
        """What was stated of the subject, in the order in which a page shows it."""
        table = {each.name: getattr(self, each.name) for each in fields(self)[:-2]}
        return {name: list(value) if name == "facts" else value for name, value in table.items() if value}


def is_date(text: str) -> bool:
    """Whether a text is a date as YYYY-MM-DD, in no other form of ISO 8601.

    Example:
        >>> is_date("2026-01-31"), is_date("20260131")
        (True, False)
    """
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_HEADINGS = {
    "dataset": "Data",
    "version": "Data version",
    "unit": "One record is",
    "owner": "Owner",
    "contact": "Contact",
    "purpose": "Purpose",
    "date": "Date",
}


def filed(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of a page for a file: what was stated of a subject, and that the rest was not.

    Args:
        about: by the names of `Subject`.

    Example:
        >>> filed({"dataset": "digits", "facts": ["1,797 records"]})[0], filed({})[-1]
        (('Data', 'digits; 1,797 records'), ('Date', 'not stated'))
    """
    given = {name: str(about.get(name) or "") for name in _HEADINGS}
    given["dataset"] = "; ".join(filter(None, [given["dataset"], *map(str, about.get("facts") or ())]))
    return [(heading, given[name] or "not stated") for name, heading in _HEADINGS.items()]


def plain_name(name: str) -> str:
    r"""`name` on one line, without the characters that no subject may hold.

    Example:
        >>> plain_name("my\ttable\u202e")
        'my table'
    """
    shown = "".join(letter for letter in " ".join(name.split()) if unicodedata.category(letter) not in _HIDDEN)
    return shown[:_LONGEST] or "data"


def _plain(name: str, value: object) -> str:
    text = unicodedata.normalize("NFC", check.instance(name, value, str, "a text"))
    check.that(len(text) <= _LONGEST, name, f"at most {_LONGEST} characters long", len(text))
    check_texts(name, text)
    return text


def check_texts(name: str, value: object) -> None:
    """Raise `InvalidInput` where a text in `value` can be read in two ways, or acts on a terminal.

    Args:
        name: what the message calls it.
        value: of JSON.
    """
    for text in texts_in(value):
        if not unicodedata.is_normalized("NFC", text):
            raise InvalidInput(f"{name} must be of texts in Unicode normal form C; got another form.")
        if any(unicodedata.category(character) in _HIDDEN for character in text):
            raise InvalidInput(f"{name} must be free of control characters; got one.")


def subject_id(kind: str, identity: str) -> str:
    """The identity of a subject, 32 hexadecimal digits, from what stays the same of it.

    Args:
        kind: "run", "ledger" or "budget".
        identity: such as the hash of a ledger.

    Example:
        >>> subject_id("ledger", "00") == subject_id("ledger", "00") != subject_id("run", "00")
        True
    """
    return hashlib.sha256(f"tacit subject {kind}\0{identity}".encode()).hexdigest()[:32]


class SeenStatements:
    """The newest statement about each subject that this user wrote or checked, by author; one file.

    An author's statements are superseded by that author's own alone, so that nobody else can make them look old.
    """

    def __init__(self) -> None:
        self._path = keys.configuration_folder() / _SEEN

    def newest(self, author: str, subject: str) -> dict[str, Any] | None:
        """The newest statement of an author, given by fingerprint, about the subject of an identity.

        Its `sequence`, its `date` as it states it, and the `digest` of its payload.
        """
        return self._rows().get(f"{author} {subject}")

    def note(self, author: str, subject: Mapping[str, Any], digest: str) -> None:
        """Keep a statement where it is the newest one; of two with one number, the first.

        Args:
            author: fingerprint of the key that signed it.
            subject: its table.
            digest: SHA-256 of its payload.
        """
        number = check.count("sequence", subject["sequence"])
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with writing("seen statements", self._path):
            rows, place = self._rows(), f"{author} {subject['id']}"
            if place not in rows or rows[place]["sequence"] < number:
                row = {"sequence": number, "date": str(subject["date"]), "digest": digest}
                write_text(self._path, json_text({"statements": rows | {place: row}}))

    def _rows(self) -> dict[str, Any]:
        return json_table("seen statements", self._path)["statements"] if self._path.exists() else {}
