"""Reason why a bracket is neither confirmed nor refuted."""


class NotDecided(Exception):
    """The ways of the judge do not reach this question."""
