"""Several indexes in one service: `/v1/NAME/search` searches index NAME; other paths use the default index.

Each index is a separate app with its own worker pools, caches and swaps. They share process, address and keys.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

DEFAULT_COLLECTION = "default"
"""Name of the index of `index_root`, for keys that are limited to collections."""
RESERVED = (
    DEFAULT_COLLECTION, "search", "documents", "embeddings", "models", "operations", "feedback", "info",
)  # fmt: skip
"""Invalid names for other indexes, because paths under /v1 use them."""
_COLLECTION = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LABEL = "collection"
_PLAIN = ("info", "readyz")
"""Paths of an index that do not exist under /v1."""


def parse_collections(entries: Iterable[str]) -> dict[str, Path]:
    """Parses the setting `index`: `NAME=ROOT` for each index."""
    folders: dict[str, Path] = {}
    for entry in entries:
        name, equals, root = (part.strip() for part in entry.partition("="))
        if not equals or not root or not _COLLECTION.fullmatch(name):
            raise ValueError(f"index: found {entry!r:.80}, expected NAME=ROOT with a name of a-z 0-9 _ -")
        if name in folders or name in RESERVED:
            raise ValueError(
                f"index: found {entry!r:.80}, but the name {name!r} is reserved or used twice; choose another name"
            )
        folders[name] = Path(root)
    return folders


class Collections(Collector):
    """An ASGI app that dispatches to the apps of several indexes."""

    def __init__(self, default: Starlette, named: Mapping[str, Starlette]) -> None:
        self._default, self._named = default, dict(named)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan of all apps."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path = scope["path"]
        if path == "/metrics" and scope["method"] in ("GET", "HEAD"):
            text = await asyncio.to_thread(generate_latest, self)
            await Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})(scope, receive, send)
        elif path == "/readyz":
            await self._ready(scope, receive, send)
        else:
            app, inner = self._find(path)
            await app({**scope, "path": inner, "raw_path": inner.encode()}, receive, send)

    def _find(self, path: str) -> tuple[Starlette, str]:
        if path.startswith("/v1/"):
            name, slash, rest = path[len("/v1/") :].partition("/")
            if slash and name in self._named:
                rest = rest.removeprefix("v1/")  # from a client whose base address is the collection's
                return self._named[name], f"/{rest}" if rest in _PLAIN else f"/v1/{rest}"
        return self._default, path

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            for app in (self._default, *self._named.values()):
                await stack.enter_async_context(app.router.lifespan_context(app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Returns the response of the first app that is not ready, otherwise that of the default index."""
        answers: list[list[Message]] = []
        for app in (self._default, *self._named.values()):
            answer: list[Message] = []

            async def keep(message: Message, answer: list[Message] = answer) -> None:
                answer.append(message)

            await app(dict(scope), receive, keep)
            answers.append(answer)
        chosen = next((answer for answer in answers if answer and answer[0].get("status") != 200), answers[0])
        for message in chosen:
            await send(message)

    def collect(self) -> Iterator[Metric]:
        """The metrics of all apps, with their collection as label."""
        families: dict[str, Metric] = {}
        for name, app in ((DEFAULT_COLLECTION, self._default), *self._named.items()):
            for family in text_string_to_metric_families(app.state.service.metrics.text().decode()):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, LABEL: name}) for sample in family.samples
                ]
        yield from families.values()
