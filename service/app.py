"""The ASGI app: its parts, its start, its end."""

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
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from glow.errors import GlowError
from glow_service.access import ClientLimits, cors_options
from glow_service.api import DrainMiddleware, RequestMiddleware, add_routes
from glow_service.collections import DEFAULT_COLLECTION, Collections
from glow_service.live import end_with_parent, is_first_to_fail, note_loaded, was_loaded
from glow_service.settings import Settings
from glow_service.state import Service, client_limits, new_service
from glow_service.telemetry import LoopLag, configure_logging

__all__ = ["EXIT_CANNOT_START", "create_app", "from_environment"]

EXIT_CANNOT_START = 3
"""Exit status of a service that cannot start; uvicorn's own, at which its supervisor stops all workers."""
LOADED_POLL_S = 0.05
RETRY_S = 1.0
"""Pause before a worker that cannot load what the other workers have loaded ends, and is started again."""
_logger = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    on_failure: Callable[[], None],
    collection: str = DEFAULT_COLLECTION,
    clients: ClientLimits | None = None,
) -> FastAPI:
    """Makes the app of one index, which is loaded once it runs, while `/readyz` says 503.

    Args:
        settings: how it runs.
        on_failure: called when the index cannot be loaded, after the reason was logged.
        collection: name of the index.
        clients: limits that it shares with the other indexes of this process; None: it is the only one.
    """
    service = new_service(settings, collection, clients)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # A daemon: a stop must not wait until a large index is loaded.
        loaded = threading.Event()
        has_mates = settings.processes > 1 and was_loaded()
        work = partial(_load, service, on_failure, loaded)
        threading.Thread(target=service.watcher.run, args=(work,), name="watch", daemon=True).start()
        if service.channel is not None:
            service.channel.start()
        service.shadow.start()
        if settings.write_key.get_secret_value():
            service.replicas.start()
        lag = asyncio.create_task(LoopLag(service.metrics.loop_lag).run())
        with _drain_on_sigterm(app) if collection == DEFAULT_COLLECTION else nullcontext():
            if has_mates:
                await _wait_until_loaded(service, loaded)
            yield
        lag.cancel()
        service.watcher.close()
        service.shadow.close()
        if service.channel is not None:
            await service.channel.close()
        service.readiness.close()
        await service.cache.close()
        # What waits to be written goes first: a search thread may work on until its request's deadline.
        logs = (service.query_log, service.feedback_log, service.ingest)
        for each in (*logs, service.replicas, service.follower, service.tracer):
            await asyncio.to_thread(each.close)
        for work_pool in service.work_pools.values():
            await asyncio.to_thread(work_pool.pool.close)

    app = FastAPI(
        title="GLOW",
        lifespan=lifespan,
        openapi_url=None,  # a route of ours serves it; FastAPI's pages for it load scripts from elsewhere
        redirect_slashes=False,  # an id may end in a slash
    )
    app.state.service, app.state.services = service, [service]  # with those of other collections, if any
    app.add_exception_handler(HTTPException, _pass_on)
    add_routes(app, page=settings.page)
    _add_middleware(app, service)
    return app


def _add_middleware(app: FastAPI, service: Service) -> None:
    """Adds what is around the routes, the innermost first: refusals need the headers of those around it."""
    app.add_middleware(RequestMiddleware, service=service)
    if options := cors_options(service.settings.cors_origins):
        app.add_middleware(CORSMiddleware, **options)
    app.add_middleware(DrainMiddleware, resources=service.resources)


def create_collections(settings: Settings, on_failure: Callable[[], None]) -> FastAPI | Collections:
    """The app of every index that the settings name."""
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
    """The app of a worker process, with its settings from the environment; uvicorn's factory."""
    try:
        settings = Settings.from_environment()
        configure_logging(settings.log_level, settings.log_format)
        if settings.processes > 1:
            end_with_parent()
        return create_collections(settings, on_failure=_stop_process)
    except (GlowError, ValueError) as error:  # a supervisor would start a worker that raises again and again
        configure_logging("info")
        _logger.critical("cannot start: %s", error)
        _stop_process()
        raise


async def _pass_on(_: Request, error: Exception) -> Response:
    """Leaves the router's refusals to the middleware, which answers every error in one form."""
    raise error


async def _wait_until_loaded(service: Service, loaded: threading.Event) -> None:
    """Before the server listens: what a worker took that cannot answer yet, its mates would have answered."""
    while not loaded.is_set():
        if service.resources.draining:
            logging.shutdown()
            os._exit(0)  # it has neither a connection nor an answer that would have to be finished
        await asyncio.sleep(LOADED_POLL_S)


def _load(service: Service, on_failure: Callable[[], None], loaded: threading.Event) -> bool:
    """Loads the first index; returns whether it could."""
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
    """Ends the process at once: it holds nothing worth closing, and uvicorn has no other way to set the status."""
    logging.shutdown()
    if (
        was_loaded()
    ):  # a worker that was started again, while the others serve: the supervisor tries once more
        time.sleep(RETRY_S)
        os._exit(1)
    os._exit(EXIT_CANNOT_START)


@contextmanager
def _drain_on_sigterm(app: FastAPI) -> Iterator[None]:
    """While the app runs, SIGTERM makes `/readyz` say 503 for `drain_s` before uvicorn shuts down."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone, and whoever owns it decides about them
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
