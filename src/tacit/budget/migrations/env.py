"""What Alembic runs: migrations on the connection that `upgrade` gives."""

from alembic import context

if __name__ == "env_py":  # the name under which Alembic loads this file
    context.configure(connection=context.config.attributes["connection"])
    context.run_migrations()
