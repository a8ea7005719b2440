"""Bringing the schema up to date, from a checkout or from an installed package, without calling a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from autotuner.adapters.postgres.engine import open_engine, transaction, translated
from autotuner.adapters.postgres.tables import VERSION_TABLE
from autotuner.errors import NotFound

FOLDERS = (Path(__file__).parent / "migrations", Path(__file__).parents[3] / "migrations")
"""Where the migrations are: inside the package when installed from a wheel, beside it in a checkout. In this order,
because what is called `migrations` beside an installed package belongs to another product."""


def migrations_folder() -> Path:
    """Return the folder that holds the migrations. Raises NotFound when the installation lacks it."""
    for folder in FOLDERS:
        if (folder / "env.py").is_file():
            return folder
    raise NotFound("folder of migrations", ", ".join(map(str, FOLDERS)))


def configuration() -> Config:
    """Return Alembic's configuration for our migrations, as `alembic.ini` gives it to the command `alembic`."""
    made = Config()
    made.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return made


def upgrade(url: str, revision: str = "head") -> str | None:
    """Bring the database at `url` to `revision` and return the revision it then has.

    One transaction: all or nothing. Several callers at once take turns. Raises Unavailable, InvalidInput.
    """
    return _run(url, command.upgrade, revision)


def downgrade(url: str, revision: str) -> str | None:
    """Take the database at `url` back to `revision` (`base` for before the first); what newer ones added is lost.

    Returns the revision it then has. Raises Unavailable, InvalidInput.
    """
    return _run(url, command.downgrade, revision)


def is_current(engine: Engine) -> bool:
    """Say whether the schema is at the newest migration. Raises Unavailable."""
    with transaction(engine) as connection:
        found = _revision(connection)
    return found == ScriptDirectory.from_config(configuration()).get_current_head()


def _run(url: str, step: Callable[[Config, str], None], revision: str) -> str | None:
    config = configuration()
    engine = open_engine(url, pool_size=1)
    try:
        with translated(), engine.begin() as connection:
            config.attributes["connection"] = connection
            step(config, revision)
            return _revision(connection)
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE}
    ).get_current_revision()
