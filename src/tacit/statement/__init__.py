"""Privacy statements: one small signed file with a ledger, its numbers and evidence, and the check of it by anybody."""

from tacit.statement.checking import Finding, Verdict, check_statement
from tacit.statement.document import Envelope, open_envelope, sealed, statement
from tacit.statement.keys import AuthorKey, TrustStore, author_key
from tacit.statement.subject import SeenStatements, Subject

__all__ = [
    "AuthorKey",
    "Envelope",
    "Finding",
    "SeenStatements",
    "Subject",
    "TrustStore",
    "Verdict",
    "author_key",
    "check_statement",
    "open_envelope",
    "sealed",
    "statement",
]
