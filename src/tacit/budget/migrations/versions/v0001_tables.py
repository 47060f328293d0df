"""The first version: signed entries that are only appended, their head, and fingerprints of records."""

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0001", None, None, None

_REFUSE = "a registry is only appended to"


def upgrade() -> None:
    """Make the tables, and triggers that refuse to change or remove an entry."""
    op.create_table(
        "entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reservation", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("link", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "head",
        sa.Column("one", sa.Integer, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("signer", sa.Text, nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
        sa.Column("link", sa.Text, nullable=False),
    )
    op.create_table(
        "fingerprints",
        sa.Column("dataset", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("hashes", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER entries_{act.lower()} BEFORE {act} ON entries "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSE}'); END"
            )
    elif op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION tacit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSE}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER entries_append_only BEFORE UPDATE OR DELETE ON entries "
            "FOR EACH STATEMENT EXECUTE FUNCTION tacit_append_only()"
        )


def downgrade() -> None:
    """Nothing: entries are never thrown away."""
    raise NotImplementedError("a registry cannot be downgraded")
