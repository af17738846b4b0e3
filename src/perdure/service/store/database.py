"""The database under the journal: opened by one service at a time, its schema brought up to date, never overwritten.

SQLite (a file of 0600, WAL, every commit on disk before it returns) or PostgreSQL by URL. One connection writes, and
it holds the lock that keeps a second service out; who reads takes connections that cannot write.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from perdure.durable import make_directory
from perdure.errors import InUse, MissingExtra, StateError, TakenOver
from perdure.installation import to_install
from perdure.service.store.schema import owners

log = logging.getLogger("perdure")

SCHEMA = "0021_owners"  # the newest migration; a test keeps the two the same
VERSION_TABLE = "perdure_schema"
FILE_NAME = "journal.db"
BUSY_S = 10.0
ROOM_BYTES = 1 << 20
"""A disk with less is still full for a journal that could not be written."""
LOCK_PATIENCE_S = 5.0  # PostgreSQL needs a moment to see that the last service is dead
_READERS = 2  # connections that are kept open; those beyond are opened as they are needed
_SERVER_GONE = {"keepalives_idle": 6, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 12_000}
_OWNER_GONE = (
    "-c tcp_keepalives_idle=6 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=12000"
)
"""After 12 s without an answer each side takes the other for dead: the lock of a machine without power is free then."""

_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON")


class Store:
    """An open database. `engine` is for reading alone; all writing goes through `writing`."""

    def __init__(self, where: str, url: URL, lock_fd: int | None, cluster: str) -> None:
        self.where = where
        self.engine = _engine(url, read_only=True)
        self._cluster = cluster
        self._lock_fd = lock_fd
        self._mutex = threading.RLock()
        self._writers = _engine(url, read_only=False)
        self._writer: Connection | None = None
        self._epoch: int | None = None  # of this owner; None before it is one
        self.wrote_s = time.monotonic()
        """When something was last written, by the clock of this machine's run."""
        self.trouble = ""
        """Why nothing can be written; "" as long as it can."""
        self._told_look_s: float | None = None

    @classmethod
    def open(cls, where: str | Path, cluster: str) -> Store:
        """Open, create or upgrade the journal of a state directory, a ``*.db`` file or a PostgreSQL URL.

        Raises `StateError` where it cannot be used as it is: no database, another program's, a newer Perdure's,
        not writable, or in use by another service; `MissingExtra` where PostgreSQL's driver is not installed.
        """
        if "://" in str(where):
            url = server_url(str(where))
            name, lock_fd = url.render_as_string(hide_password=True), None
        else:
            path = Path(where)
            path = path if path.suffix == ".db" else path / FILE_NAME
            url, name, lock_fd = URL.create("sqlite+pysqlite", database=str(path)), str(path), _lock_file(path)
        try:
            store = cls(name, url, lock_fd, cluster)
        except BaseException:
            _unlock(lock_fd)
            raise
        try:
            with store.writing() as db:
                epoch = _bring_up_to_date(db, name, cluster)
            store._epoch = epoch
        except BaseException:
            store.close()
            raise
        return store

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, on disk once the block is left without an error. Raises `StateError` where it failed."""
        with self._mutex:
            try:
                db = self._connected()
                with db.begin():
                    yield db
                self.wrote_s = time.monotonic()
                if self.trouble and self._has_room():
                    self.trouble = ""
                    log.warning("%s: can be written again", self.where)
            except SQLAlchemyError as err:
                self._drop_broken()
                unusable = _unusable(self.where, err)
                self.trouble = unusable.what
                raise unusable from err

    def _has_room(self) -> bool:
        """Whether the disk has some: a little can be written to a full one, where SQLite's log has room in itself."""
        if self.dialect != "sqlite":
            return True
        try:
            return shutil.disk_usage(Path(self.where).parent).free >= ROOM_BYTES
        except OSError:
            return False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view. Raises `StateError` where the database does not answer."""
        try:
            with self.engine.connect() as db:
                yield db
        except SQLAlchemyError as err:
            raise _unusable(self.where, err) from err

    def probe(self, every_s: float, looked_s: float | None = None, standing: str | None = None) -> None:
        """Write, where nothing was written for this long: whether one can is known before it matters.

        When the cluster was looked at last, and as JSON how it stands, is written after each look.
        """
        is_news = looked_s is not None and looked_s != self._told_look_s
        if self.trouble or is_news or time.monotonic() - self.wrote_s >= every_s:
            with self.writing() as db:
                db.execute(
                    owners.update()
                    .where(owners.c.cluster == self._cluster)
                    .values(looked_s=looked_s, standing=standing)
                )
            self._told_look_s = looked_s

    def close(self) -> None:
        with self._mutex, suppress(SQLAlchemyError):
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._writers.dispose()
        self.engine.dispose()
        _unlock(self._lock_fd)
        self._lock_fd = None

    def _connected(self) -> Connection:
        """The writing connection. A new one must get the lock again: whoever has it now is the service.

        Raises `InUse` where another has it, `TakenOver` where another has had it since.
        """
        if self._writer is None:
            writer = self._writers.connect()
            try:
                if self.dialect == "postgresql":
                    self._own(writer)
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _own(self, writer: Connection) -> None:
        """Get the lock; asked before and after it, the number of the owner tells whether it was another's meanwhile."""
        if self._epoch is not None:
            _check_epoch(writer, self.where, self._cluster, self._epoch)
        _lock_server(writer, self.where, self._cluster)
        if self._epoch is not None:
            _check_epoch(writer, self.where, self._cluster, self._epoch)

    def _drop_broken(self) -> None:
        if self._writer is not None and self._writer.invalidated:
            self._writer.close()
            self._writer = None


def reading_engine(url: str) -> Engine:
    """What another process reads an open database with, by the address of its `Store.engine`; it cannot write."""
    return _engine(make_url(url), read_only=True)


def in_own_schema(address: str, cluster: str) -> str:
    """The address of a PostgreSQL database in which a cluster has a schema of its own. Raises `StateError`.

    So its tables and indexes hold its rows alone, and cost what they cost where it is the only one.
    """
    url = server_url(address)
    said = url.query.get("options", "")
    return url.update_query_dict({"options": f'{said} -c search_path="{cluster}"'.strip()}).render_as_string(
        hide_password=False
    )


def server_url(text_: str) -> URL:
    """The address of a PostgreSQL database, with the driver. Raises `StateError` for another one's."""
    try:
        url = make_url(text_)
    except ArgumentError as err:
        raise StateError("database", "not a URL", "Write postgresql://USER@HOST/NAME") from err
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StateError(url.drivername, "not a database that Perdure knows", "Write postgresql://USER@HOST/NAME")
    return url.set(drivername="postgresql+psycopg")


def _as_is(value: str) -> str:
    """JSON columns are handed text that `perdure.service.store.codec` has written already."""
    return value


def _engine(url: URL, *, read_only: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_S, "check_same_thread": False}}
    else:
        said = url.query.get("options", "")
        given = f"-c default_transaction_read_only=on {_OWNER_GONE}" if read_only else _OWNER_GONE
        options = {"connect_args": {"options": f"{said} {given}", **_SERVER_GONE}}
        if read_only:
            options["pool_size"] = _READERS
    if not read_only:
        options["poolclass"] = NullPool
    try:
        engine = create_engine(url, json_serializer=_as_is, **options)
    except (ModuleNotFoundError, NoSuchModuleError) as err:
        raise MissingExtra("PostgreSQL", "its driver is not installed", to_install("postgres")) from err
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine, read_only)
    return engine


def _prepare_sqlite(engine: Engine, read_only: bool) -> None:
    """Take transactions out of the driver's hands: it would leave DDL outside and begin late."""
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if read_only:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


# -- one service at a time


def _lock_file(path: Path) -> int:
    """Lock the journal next to `path` for the life of this process, and see that only its owner can read it."""
    lock = path.with_name(path.name + ".lock")
    fd = -1
    try:
        make_directory(path.parent, 0o700)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(path, 0o600)
    except BlockingIOError as err:
        pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f"another service, process {pid}" if pid else "another service"
        raise InUse(str(path), f"in use by {by}", "Stop that one, or give this one its own --state DIR") from err
    except OSError as err:
        if fd >= 0:
            os.close(fd)
        fix = "Name a directory that you may write with --state DIR"
        raise StateError(str(path), f"cannot be opened for writing: {err.strerror}", fix) from err
    return fd


def _unlock(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def lock_key(of: str) -> int:
    """PostgreSQL names advisory locks by numbers of 64 bits."""
    digest = hashlib.blake2b(f"perdure:{of}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _lock_server(db: Connection, where: str, cluster: str) -> None:
    """Take the advisory lock of this cluster; it lasts as long as the connection."""
    ask = text("SELECT pg_try_advisory_lock(:key)").bindparams(key=lock_key(cluster))
    until = time.monotonic() + LOCK_PATIENCE_S
    fix = "Stop that one first; or, where it watches another cluster, give each a service.cluster_name"
    while True:
        with db.begin():
            if db.execute(ask).scalar_one():
                return
        if time.monotonic() > until:
            raise InUse(where, f"in use by another service for cluster {cluster!r}", fix)
        time.sleep(0.05)


def _next_epoch(db: Connection, cluster: str) -> int:
    """Write down that this process has the cluster now; its number, larger than that of any before."""
    last = db.scalar(select(owners.c.epoch).where(owners.c.cluster == cluster))
    epoch = int(last or 0) + 1
    values = {"epoch": epoch, "owner": f"{socket.gethostname()}:{os.getpid()}", "looked_s": None}
    if last is None:
        db.execute(owners.insert().values(cluster=cluster, **values))
    else:
        db.execute(owners.update().where(owners.c.cluster == cluster).values(**values))
    return epoch


def _check_epoch(db: Connection, where: str, cluster: str, mine: int) -> None:
    """Raise `TakenOver` where somebody else has had the cluster since."""
    with db.begin():
        found = db.scalar(select(owners.c.epoch).where(owners.c.cluster == cluster))
    if found != mine:
        raise TakenOver(
            where, f"another service has taken over cluster {cluster!r}", "Start this one again with --standby"
        )


# -- the schema


def _bring_up_to_date(db: Connection, where: str, cluster: str) -> int:
    """Create or upgrade the schema inside the caller's transaction: done as a whole, or not at all.

    Services of several clusters may open a new database at the same time: the first does it, the others wait. Then the
    cluster is this process's; returns its number as the owner.
    """
    if db.dialect.name == "postgresql":
        if db.scalar(text("SELECT current_schema()")) is None:  # the one that `in_own_schema` names
            db.execute(CreateSchema(cluster, if_not_exists=True))
        db.execute(text("SELECT pg_advisory_xact_lock(:key)").bindparams(key=lock_key("the schema, for all clusters")))
    tables = set(inspect(db).get_table_names())
    if VERSION_TABLE not in tables and tables:
        found = ", ".join(sorted(tables)[:3])
        raise StateError(where, f"another program's database (it has {found})", "Name an empty one, or no file at all")
    version = _version(db) if tables else None
    if version != SCHEMA:
        _upgrade(db, where, version)
    return _next_epoch(db, cluster)


def _version(db: Connection) -> str | None:
    return db.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608, a name of ours


def _upgrade(db: Connection, where: str, version: str | None) -> None:
    from alembic import command  # takes a quarter of a second, and most starts do without
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = db
    try:
        if version is not None:
            ScriptDirectory.from_config(config).get_revision(version)
    except CommandError as err:
        what = f"written by a newer Perdure (schema {version!r})"
        raise StateError(where, what, "Upgrade Perdure, or name another --state DIR") from err
    command.upgrade(config, "head")


def _unusable(where: str, err: SQLAlchemyError) -> StateError:
    """The driver's own words, in one line, with what to do about them."""
    said = " ".join(str(getattr(err, "orig", None) or err).split())
    if "not a database" in said or "malformed" in said:
        return StateError(where, f"not a readable SQLite database: {said}", "Restore it, or move it out of the way")
    if "disk is full" in said or "No space left" in said:
        return StateError(where, f"cannot be written: {said}", "Free some space on its disk")
    return StateError(where, f"does not work: {said}", "Check that it is there and may be written")
