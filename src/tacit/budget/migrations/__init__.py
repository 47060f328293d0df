"""Versions of the tables of a registry, by Alembic: a registry of an older version is upgraded when it is opened."""

from pathlib import Path
from typing import Any


def upgrade(engine: Any) -> None:
    """Bring the tables behind `engine` to the newest version."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
