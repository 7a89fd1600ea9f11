"""The ASGI app: assembly, startup and shutdown."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from glow.errors import GlowError
from glow_service.access import ClientLimits, cors_options
from glow_service.api.middleware import RequestMiddleware
from glow_service.api.routes import add_routes
from glow_service.collections import DEFAULT_COLLECTION, Collections
from glow_service.live.workers import end_with_parent, is_first_to_fail, note_loaded, was_loaded
from glow_service.settings import Settings
from glow_service.state import Service, client_limits, new_service
from glow_service.telemetry.logs import configure_logging
from glow_service.telemetry.metrics import measure_loop_lag

EXIT_CANNOT_START = 3
"""Exit status of a service that cannot start. It is uvicorn's: its supervisor then stops all workers."""
LOADED_POLL_S = 0.05
RETRY_S = 1.0
"""Pause before a restarted worker exits because it cannot load the index that other workers serve."""
_logger = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    on_failure: Callable[[], None],  # called if the index cannot be loaded, after the error was logged
    collection: str = DEFAULT_COLLECTION,
    clients: ClientLimits | None = None,  # shared with the other indexes of this process; None: new ones
) -> FastAPI:
    """Makes the app of one index. The running app loads the index; until then, `/readyz` returns 503."""
    service = new_service(settings, collection, clients)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # A daemon thread: shutdown must not wait for the loading of a large index.
        loaded = threading.Event()
        has_mates = settings.processes > 1 and was_loaded()
        work = partial(_load, service, on_failure, loaded)
        threading.Thread(target=service.watcher.run, args=(work,), name="watch", daemon=True).start()
        lag = asyncio.create_task(measure_loop_lag(service.metrics.loop_lag))
        with _drain_on_sigterm(app) if collection == DEFAULT_COLLECTION else nullcontext():
            if has_mates:
                await _wait_until_loaded(service, loaded)
            yield
        lag.cancel()
        service.watcher.close()
        service.readiness.close()
        await service.cache.close()
        # Logs are flushed first: a search thread may run until its request's deadline.
        logs = (service.query_log, service.feedback_log, service.ingest)
        for each in (*logs, service.follower, service.tracer):
            await asyncio.to_thread(each.close)
        await asyncio.to_thread(service.pool.close)

    app = FastAPI(
        title="GLOW",
        lifespan=lifespan,
        openapi_url=None,  # GLOW has its own route; FastAPI's documentation pages load scripts of other sites
        redirect_slashes=False,  # an id may end in a slash
    )
    app.state.service, app.state.services = service, [service]  # those of other collections are added later
    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _pass_on)
    add_routes(app, page=settings.page)
    # Innermost first: refusals need the headers that the outer ones add.
    app.add_middleware(RequestMiddleware, service=service)
    if options := cors_options(settings.cors_origins):
        app.add_middleware(CORSMiddleware, **options)
    service.tracer.instrument(app)
    return app


def create_collections(settings: Settings, on_failure: Callable[[], None]) -> FastAPI | Collections:
    """Makes the app of all indexes in the settings."""
    clients = client_limits(settings)
    default = create_app(settings, on_failure, clients=clients)
    if not settings.collections:
        return default
    named = {}
    for name, root in settings.collections.items():
        folder = str(Path(settings.ingest_folder) / name) if settings.ingest_folder else ""
        own = settings.model_copy(
            update={"index_root": root, "index": (), "ingest_folder": folder, "page": False}
        )
        named[name] = create_app(own, on_failure, name, clients)
    default.state.services += [each.state.service for each in named.values()]
    return Collections(default, named)


def from_environment() -> FastAPI | Collections:
    """Makes the app of a worker process from environment variables; the factory for uvicorn."""
    try:
        settings = Settings.from_environment()
        configure_logging(settings.log_level, settings.log_format)
        if settings.processes > 1:
            end_with_parent()
        return create_collections(settings, on_failure=_stop_process)
    except (GlowError, ValueError) as error:  # if it raised, the supervisor would restart the worker forever
        configure_logging("info")
        _logger.critical("cannot start: %s", error)
        _stop_process()
        raise


async def _pass_on(_: Request, error: Exception) -> Response:
    """Passes the router's errors to the middleware, which turns every error into a problem response."""
    raise error


async def _wait_until_loaded(service: Service, loaded: threading.Event) -> None:
    """Waits before the server listens: until this worker is loaded, its peers should get the connections."""
    while not loaded.is_set():
        if service.resources.draining:
            logging.shutdown()
            os._exit(0)  # there are no connections or responses to finish
        await asyncio.sleep(LOADED_POLL_S)


def _load(service: Service, on_failure: Callable[[], None], loaded: threading.Event) -> bool:
    """Loads the index at startup; returns whether that succeeded."""
    try:
        service.resources.load()
        note_loaded()
        loaded.set()
        return True
    except (GlowError, OSError) as error:
        code = error.code if isinstance(error, GlowError) else "unreadable"
        if was_loaded() or is_first_to_fail():
            _logger.critical("cannot start: %s", error, extra={"fields": {"code": code}})
        on_failure()
    except Exception:
        _logger.critical("cannot start: unexpected error", exc_info=True)
        on_failure()
    return False


def _stop_process() -> None:
    """Exits at once: there is nothing to close, and uvicorn has no other way to set the exit status."""
    logging.shutdown()
    if was_loaded():  # a restarted worker, while others serve: the supervisor restarts it again
        time.sleep(RETRY_S)
        os._exit(1)
    os._exit(EXIT_CANNOT_START)


@contextmanager
def _drain_on_sigterm(app: FastAPI) -> Iterator[None]:
    """Makes `/readyz` return 503 for `drain_s` after SIGTERM, before uvicorn shuts down."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    loop = asyncio.get_running_loop()
    stop = signal.getsignal(signal.SIGTERM)

    def begin() -> None:
        for service in app.state.services:
            service.resources.drain()
        if callable(stop):
            loop.call_later(app.state.service.settings.drain_s, stop, signal.SIGTERM, None)

    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(begin))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, stop)
