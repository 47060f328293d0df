"""The neighbouring relations under which a privacy guarantee is stated."""

from enum import StrEnum

from tacit import check


class Relation(StrEnum):
    """Neighbouring relation: the pairs of data sets that a guarantee covers.

    A record's contribution to a clipped sum has norm at most `clip_norm`, so the sum changes by at
    most `sensitivity * clip_norm`, with sensitivity 1 when a record is added, removed or zeroed, 2 when it is replaced.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @property
    def sensitivity(self) -> float:
        """L2 change of a sum of contributions of norm <= 1 between neighbours."""
        return 2.0 if self is Relation.REPLACE_ONE else 1.0

    def covers(self, other: "Relation") -> bool:
        """Whether a number under this relation holds under `other`: a blank record in place of none changes nothing."""
        return self is other or (self, other) == (Relation.ADD_REMOVE, Relation.ZERO_OUT)

    @classmethod
    def parse(cls, value: object) -> "Relation":
        """The relation named by `value`; raises `InvalidInput` with the list and the nearest name."""
        return cls(check.choice("relation", value, [member.value for member in cls]))


def unit_in_words(unit: str, record: str = "") -> str:
    """A privacy unit in words for a file.

    Args:
        unit: as a ledger has it.
        record: what one record is, where that was stated.

    Example:
        >>> unit_in_words("record"), unit_in_words("household")
        ("one person's record", 'one household')
    """
    known = {"record": f"one record ({record})" if record else "one person's record"}
    known["user"] = "all records of one person"
    return known.get(unit, f"one {unit}")
