"""The same registry in PostgreSQL; skipped where no server can be started."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import Epsilon, InvalidInput
from tacit.budget import Registry
from tacit.mechanisms import Gaussian

pytest.importorskip("psycopg")
SERVER = shutil.which("postgres") and shutil.which("initdb")
pytestmark = pytest.mark.skipif(not SERVER, reason="no PostgreSQL server is installed: postgres and initdb")


def as_user(command: list[str]) -> list[str]:
    """The server refuses to run as root."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]
    return command


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("postgresql")
    for each in (folder, *folder.parents):  # The server's user must reach it.
        if each.stat().st_uid == os.geteuid() and len(each.parts) > 2:
            each.chmod(0o777)
    home = Path(folder) / "data"
    made = subprocess.run(
        as_user(["initdb", "-D", str(home), "-A", "trust", "-U", "tacit", "--no-sync"]), capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"initdb failed: {made.stderr[-200:]}")
    process = subprocess.Popen(
        as_user(["postgres", "-D", str(home), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "ready to accept connections" in line:
            break
    yield f"postgresql://tacit@/postgres?host={folder}"
    process.send_signal(signal.SIGINT)  # the fast shutdown: clients are disconnected
    process.communicate()


WRITER = """
import sys
from tacit import BudgetExceeded
from tacit.budget import Registry
from tacit.mechanisms import Gaussian
made = 0
for _ in range(12):
    try:
        Registry(sys.argv[1]).dataset("patients").reserve(Gaussian(8.0))
        made += 1
    except BudgetExceeded:
        pass
print(made)
"""


def test_a_team_shares_one_database_and_edits_are_refused(server):
    registry = Registry.create(server)
    dataset = registry.declare("patients")
    dataset.cap(Epsilon(1.4, 1e-5))
    shells = [subprocess.Popen([sys.executable, "-c", WRITER, server], stdout=-1, text=True) for _ in range(2)]
    made = sum(int(shell.communicate()[0]) for shell in shells)
    assert dataset.total().steps == made > 0
    assert float(dataset.spent().epsilon(1e-5)) <= 1.4
    with pytest.raises(Exception, match="budget of 'patients' must stay within"):
        dataset.reserve(Gaussian(8.0))
    import sqlalchemy

    registry.dataset("patients").register([[1.0, 2.0]], [0])
    assert registry.recognise([[1.0, 2.0]], [0]) == ["patients"]
    assert Registry.create(server).verify() == len(registry.store.rows) + 0
    with registry.store._engine.connect() as connection:
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="only appended"):
            connection.execute(sqlalchemy.text("UPDATE entries SET body = '{}'"))
        connection.rollback()
        connection.execute(sqlalchemy.text("ALTER TABLE entries DISABLE TRIGGER ALL"))
        connection.execute(sqlalchemy.text("UPDATE entries SET body = replace(body, '8.0', '9.0') WHERE number = 4"))
        connection.commit()
    with pytest.raises(InvalidInput, match="entry 4 was edited"):
        Registry(server)
