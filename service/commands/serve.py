"""`glow serve`: reads the settings and starts the service; `glow key`: makes a key for it.

Exit status of `glow serve`: 0 after SIGTERM or SIGINT, 2 for invalid settings, 3 if the service cannot start (because of
an artifact, a device or the port; see the log).
"""

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import uvicorn
from pydantic import SecretStr, ValidationError

from glow.artifact import IndexRoot
from glow.commands import OptionRow, command, describe_faults, fail, option, say, with_parameters
from glow.errors import ConfigError, GlowError
from glow.options import StrictModel
from glow_service.access import make_key
from glow_service.app import EXIT_CANNOT_START
from glow_service.settings import Settings, settings_table
from glow_service.telemetry.logs import configure_logging
from glow_service.telemetry.metrics import metrics_folder

CONFIG_VARIABLE = "GLOW_CONFIG"
FILE_SUFFIX = "_FILE"


def read_files(
    config: Path | None, rows: tuple[OptionRow, ...], environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Settings of files, which flags and variables override, and list variables; errors never contain secrets."""
    values: dict[str, Any] = {}
    known = {row.name for row in rows}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"cannot read {config}: {error}") from error
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{config} has unknown settings: {', '.join(unknown)}; docs/reference/settings.md lists all settings"
            )
    for row in rows:
        if row.is_list:
            entries = environ.get(row.env) or values.get(row.name)
            if entries is not None:
                values[row.name] = [entries] if isinstance(entries, str) else entries
        path = environ.get(f"{row.env}{FILE_SUFFIX}")
        if path and isinstance(row.default, SecretStr):
            try:
                values[row.name] = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8"
                raise ConfigError(f"{row.env}{FILE_SUFFIX}: cannot read {path}: {reason}") from error
    return values


# `glow key`: makes an API key, the admin key, or the write key.


class KeyOptions(StrictModel):
    """Options of `glow key`."""

    name: str = option("", "Name of the key, as logs show it.", is_argument=True, metavar="[NAME]")
    admin: bool = option(False, "Make the key for /admin, which has no name.")
    write: bool = option(False, "Make the key for writing documents, which has no name.")


@command(KeyOptions)
def key_command(options: KeyOptions) -> None:
    """Makes a key and prints it once; settings need only its hash."""
    key, entry = make_key(options.name, is_admin=options.admin, is_write=options.write)
    where = "an entry of GLOW_API_KEYS (separated by commas)" if options.name else "the setting"
    say(f"key for the client, shown only once:\n{key}\n{where}:\n{entry}")


# The supervisor of worker processes. uvicorn's own spawns them; forked ones start a second faster and share memory.

POLL_S = 0.1
ACCEPTED_S = 0.5
"""How long a worker that ends waits for first requests of accepted connections, in seconds."""
LONGEST_LOAD_S = 600.0
"""How long a replacement worker may load, in seconds."""
_logger = logging.getLogger(__name__)
# Libraries of other systems may not survive a fork.
_processes: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
_NO_NEWS = ("Unsupported upgrade request", "No supported WebSocket library")
"""Lines of uvicorn's log that are left out: anyone may offer an upgrade."""


class _Server(uvicorn.Server):
    """uvicorn closes connections whose first request has not been read when it ends: their clients would see a reset."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        if self.server_state.connections:
            await asyncio.sleep(ACCEPTED_S)
        await super().shutdown(sockets)


def _work(config: uvicorn.Config, listening: socket.socket, serving: Any) -> None:
    """A worker process; sets the event `serving` once it serves."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a closed terminal; the supervisor acts on it
    server = _Server(config)

    def tell() -> None:
        while not server.started:
            time.sleep(POLL_S)
        serving.set()

    threading.Thread(target=tell, daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


class Supervisor:
    """Starts the workers, restarts those that end, and on SIGHUP replaces them one by one."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket) -> None:
        self._config, self._listening = config, listening
        self._signals: list[int] = []

    def run(self) -> int:
        """Runs until it receives a stop signal, or a worker cannot start, which logs the reason; returns the status."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._signals.append(number))
        # Forked workers share what is imported here. This process has one thread and has opened no index.
        gc.collect()
        gc.freeze()
        workers, status = [self._start()[0] for _ in range(self._config.workers)], 0
        while not (self._is_to_stop() or status):
            time.sleep(POLL_S)
            if signal.SIGHUP in self._signals:
                self._signals.remove(signal.SIGHUP)
                self._replace(workers)
            for place, worker in enumerate(workers):
                if not worker.is_alive() and not self._is_to_stop():
                    if worker.exitcode == EXIT_CANNOT_START:
                        status = EXIT_CANNOT_START
                        break
                    fields = {"pid": worker.pid, "status": worker.exitcode}
                    _logger.warning("a worker ended; another one starts", extra={"fields": fields})
                    workers[place] = self._start()[0]
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        return status

    def _start(self) -> tuple[Any, Any]:
        """A new worker, and the event that it serves."""
        serving = _processes.Event()
        worker = _processes.Process(target=_work, args=(self._config, self._listening, serving))
        worker.start()
        return worker, serving

    def _replace(self, workers: list[Any]) -> None:
        """Replaces each worker; the new one serves before the old one ends."""
        for place, old in enumerate(workers):
            new, serving = self._start()
            until = time.monotonic() + LONGEST_LOAD_S
            while new.is_alive() and not (
                serving.wait(POLL_S) or self._is_to_stop() or time.monotonic() > until
            ):
                pass
            if not serving.is_set():
                new.kill()
                new.join()
                if not self._is_to_stop():
                    fields = {"pid": old.pid}
                    _logger.error("a new worker did not start; the old ones stay", extra={"fields": fields})
                return
            old.terminate()
            old.join()
            workers[place] = new

    def _is_to_stop(self) -> bool:
        return signal.SIGINT in self._signals or signal.SIGTERM in self._signals


BACKLOG = 2_048
"""Most connections that wait to be accepted."""
MAX_HEAD_BYTES = 64 << 10
"""Largest request line and headers, in bytes."""
_M_ARENA_MAX = -8
KEEP_ALIVE_S = 75
"""How long an idle connection stays open, in seconds: longer than the 60 s of ALB, ingress-nginx and our HAProxy."""
HTTP: dict[str, Any] = {
    # Unlike httptools, h11 bounds headers, reads no request ahead of the last response, and ignores an `Upgrade`,
    # which Java's client sends with each request.
    "http": "h11",
    "h11_max_incomplete_event_size": MAX_HEAD_BYTES,
    "timeout_keep_alive": KEEP_ALIVE_S,
    "ws": "none",
    "lifespan": "on",
    "log_config": None,
    "access_log": False,  # GLOW's has the request id
    "server_header": False,
}
"""uvicorn's options for connections."""


def _read(context: typer.Context, config: Path | None) -> Path | None:
    """Makes the settings of files the defaults; called before any other flag is read."""
    try:
        context.default_map = {**(context.default_map or {}), **read_files(config, settings_table())}
    except ConfigError as error:
        fail(f"error ({error.code}): settings are not valid: {error}", error.exit_code)
    return config


def _serve(config: Path | None = None, **values: Any) -> None:
    """Serves the live version of an index over HTTP."""
    try:
        settings = Settings.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
        if url := settings.redis_url.get_secret_value():
            from glow_service.redis import redis_client

            redis_client(url, 1)  # checks the URL; it does not connect
    except (ConfigError, ValidationError) as error:
        faults = describe_faults(error, settings_table()) if isinstance(error, ValidationError) else error
        fail(f"error ({ConfigError.code}): settings are not valid: {faults}", ConfigError.exit_code)
    configure_logging(settings.log_level, settings.log_format)
    _require_index(settings)
    with metrics_folder(settings.processes), _files_kept(settings) as kept:
        # Worker processes, and the app factory in this process, read the settings from the environment.
        os.environ.update(kept.to_environment())
        status = _run(settings)
    raise typer.Exit(status)


@contextmanager
def _files_kept(settings: Settings) -> Iterator[Settings]:
    """Copies the tenants file, so that a worker that is restarted later reads the same file as its peers."""
    if not settings.tenants:
        yield settings
        return
    with TemporaryDirectory(prefix="glow-tenants-") as folder:
        copy = Path(folder) / Path(settings.tenants).name
        shutil.copyfile(settings.tenants, copy)
        yield settings.model_copy(update={"tenants": str(copy)})


def _require_index(settings: Settings) -> None:
    """Exits if there is no index to serve, before each worker reports it. Workers verify the files."""
    try:
        for folder in (settings.index_root, *settings.collections.values()):
            root = IndexRoot(folder)
            root.manifest(root.current())
    except GlowError as error:
        _logger.critical("cannot start: %s", error, extra={"fields": {"code": error.code}})
        raise typer.Exit(EXIT_CANNOT_START) from error


def _run(settings: Settings) -> int:
    config = uvicorn.Config(
        "glow_service.app:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.processes,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        **HTTP,
    )
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not any(each in record.getMessage() for each in _NO_NEWS)
    )
    with suppress(OSError, AttributeError):  # not glibc, which would keep free memory for each thread
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    listening = _listen(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    fields = {"url": f"http://{host}:{settings.port}", "workers": settings.processes}
    _logger.info("listening", extra={"fields": fields})
    try:
        if settings.processes == 1:
            # uvicorn raises SIGTERM again after shutdown; exit with status 0.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            _Server(config).run(sockets=[listening])
            return 0
        return Supervisor(config, listening).run()
    except KeyboardInterrupt:
        return 0


def _listen(settings: Settings) -> socket.socket:
    """The socket that all workers share; exits with the reason in the log if it cannot listen."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        place = f"{settings.host} port {settings.port}"
        _logger.critical("cannot start: cannot listen on %s: %s", place, error.strerror or error)
        raise typer.Exit(EXIT_CANNOT_START) from error
    # Connections inherit it. Otherwise a body waits 40 ms for the client to acknowledge the headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.set_inheritable(True)
    return listening


_CONFIG = typer.Option(
    "--config",
    envvar=CONFIG_VARIABLE,
    is_eager=True,
    callback=_read,
    metavar="FILE",
    help="TOML file with settings by name.",
)
serve_command = with_parameters(_serve, settings_table(), config=Annotated[Path | None, _CONFIG])
