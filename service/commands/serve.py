"""`glow serve`: reads the settings and starts the service.

Exit status: 0 after SIGTERM or SIGINT, 2 for invalid settings, 3 if the service cannot start (because of an
artifact, a device or the port; see the log).
"""

import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import uvicorn
from pydantic import ValidationError

from glow.artifact import IndexRoot
from glow.commands import describe_faults, fail, with_parameters
from glow.errors import ConfigError, GlowError
from glow_service.app import EXIT_CANNOT_START
from glow_service.commands.files import CONFIG_VARIABLE, read_files
from glow_service.commands.supervisor import Supervisor
from glow_service.protocol import BoundedProtocol
from glow_service.settings import Settings, settings_table
from glow_service.telemetry import configure_logging, metrics_folder

__all__ = ["serve_command"]

BACKLOG = 2_048
"""Most connections that wait to be accepted."""
_logger = logging.getLogger(__name__)


def _read(context: typer.Context, config: Path | None) -> Path | None:
    """Makes the settings of files the defaults; called before any other flag is read."""
    try:
        context.default_map = {**(context.default_map or {}), **read_files(config, settings_table())}
    except ConfigError as error:
        fail(f"settings are not valid: {error}", error.exit_code)
    return config


def _serve(config: Path | None = None, **values: Any) -> None:
    """Serves the live version of an index over HTTP."""
    try:
        settings = Settings.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
        if url := settings.redis_url.get_secret_value():
            from glow_service.redis import check_redis_url

            check_redis_url(url)
    except ConfigError as error:
        fail(f"settings are not valid: {error}", error.exit_code)
    except ValidationError as error:
        faults = describe_faults(error, settings_table())
        fail(f"settings are not valid: {faults}", ConfigError.exit_code)
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
        http=BoundedProtocol,
        workers=settings.processes,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        log_config=None,
        access_log=False,  # GLOW's has the request id
        server_header=False,
        ws="none",
        lifespan="on",
    )
    listening = _listen(settings)
    if listening is None:
        return EXIT_CANNOT_START
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    fields = {"url": f"http://{host}:{settings.port}", "workers": settings.processes}
    _logger.info("listening", extra={"fields": fields})
    try:
        if settings.processes == 1:
            # uvicorn raises SIGTERM again after shutdown; exit with status 0.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            uvicorn.Server(config).run(sockets=[listening])
            return 0
        supervisor = Supervisor(config, sockets=[listening])
        supervisor.run()
        failed = any(worker.exitcode == EXIT_CANNOT_START for worker in supervisor.processes)
        return EXIT_CANNOT_START if failed else 0
    except KeyboardInterrupt:
        return 0


def _listen(settings: Settings) -> socket.socket | None:
    """The socket that all workers share; None, with the reason in the log, if it cannot listen."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        place = f"{settings.host} port {settings.port}"
        _logger.critical("cannot start: cannot listen on %s: %s", place, error.strerror or error)
        return None
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
