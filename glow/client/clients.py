"""The two clients: they send the calls of `glow.client.calls`, and repeat those that the service never processed."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Self, TypeVar

import httpx
from msgspec import DecodeError

from glow import __version__
from glow.client.calls import Call, Calls, H, Pages
from glow.client.errors import InvalidResponseError, failure_of, retry_after_s
from glow.errors import ConfigError

R = TypeVar("R")
T = TypeVar("T")
# The service closes connections that are idle for 5 s; expiring them earlier keeps a request from being cut off.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)
Outcome = httpx.Response | httpx.RequestError
"""Outcome of one attempt: a response of any status, or a failure."""
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to retry requests that the service never processed."""

    attempts: int = 4  # in total; 1 disables retries
    total_s: float = 30.0  # latest start of an attempt, after the start of the first
    first_pause_s: float = 0.2  # longest pause before the second attempt; it doubles with each attempt

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.total_s, self.first_pause_s) < 0:
            raise ConfigError(f"{self} is invalid; attempts must be at least 1, and times at least 0")

    def pause_s(self, outcome: Outcome, attempt: int, elapsed_s: float) -> float | None:
        """Seconds until the next attempt; None if the outcome of this one, counted from 1, is final."""
        least_s = 0.0
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in (429, 503):
                return None
            least_s = retry_after_s(outcome.headers) or 0.0
        elif not isinstance(outcome, _NEVER_SENT):
            return None
        # The jitter keeps clients that were refused together from returning together.
        pause_s = least_s + random.uniform(0.0, self.first_pause_s * 2 ** (attempt - 1))  # noqa: S311 - no secret
        return pause_s if attempt < self.attempts and elapsed_s + pause_s <= self.total_s else None


class _Client(Calls[H]):
    """What both clients have besides their calls."""

    _http_class: type[Any]

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        http: H | None = None,
    ) -> None:
        """Opens no connection yet.

        Args:
            base_url: address of the service; `http://127.0.0.1:8080` for a local one.
            api_key: API key, if the service needs one.
            timeout_s: limit of each wait for a connection, for sending, and for the next bytes of a response.
            retry: how to retry after a 429, a 503, or a failed connection.
            http: your own httpx client, for proxies or certificates; it stays open when this client closes.

        Raises:
            ConfigError: if the address or the key is invalid.
        """
        if not _is_address(base_url):
            raise ConfigError(
                f"base_url {base_url!r:.80} is not an address; expected one such as http://127.0.0.1:8080"
            )
        headers = {"User-Agent": f"glow-client/{__version__}", "Accept": "application/json"}
        if api_key is not None:
            if not (api_key and api_key.isascii() and api_key.isprintable() and " " not in api_key):
                raise ConfigError(
                    "the API key is empty or has characters that a header cannot contain; copy the whole key again"
                )
            headers["Authorization"] = f"Bearer {api_key}"
        self._headers = httpx.Headers(headers)  # they do not show the key
        self._base_url, self._timeout_s = base_url, timeout_s
        self._retry = retry or RetryPolicy()
        self._http: H = http or self._http_class(limits=LIMITS)
        self._is_owner = http is None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"

    def _request(self, call: Call[Any]) -> httpx.Request:
        url = self._base_url.rstrip("/") + call.path
        return self._http.build_request(
            call.method, url, json=call.body, headers=self._headers, timeout=self._timeout_s
        )

    def _pause_s(self, call: Call[Any], outcome: Outcome, attempt: int, started: float) -> float | None:
        took_s = time.monotonic() - started
        return self._retry.pause_s(outcome, attempt, took_s) if call.is_repeatable else None

    def _result(self, call: Call[T], outcome: Outcome) -> T:
        if isinstance(outcome, httpx.RequestError):
            raise failure_of(outcome, self._base_url) from outcome
        try:
            return call.read(outcome)
        except (DecodeError, UnicodeDecodeError) as error:
            raise InvalidResponseError(
                f"{outcome.url} returned {outcome.content[:80]!r}, which is not a response of GLOW ({error}); "
                "check that the address is a service of a supported version"
            ) from error


def _is_address(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not url.query and not url.fragment


class GlowClient(_Client[httpx.Client]):
    """Calls a GLOW service. Threads may share one client; reuse it, because it keeps connections open.

    Every method raises a `ClientError` on failure: `ServiceError` for a problem response of the service,
    otherwise `ConnectionFailedError` or `InvalidResponseError`.
    """

    _http_class = httpx.Client

    def close(self) -> None:
        """Closes the connections."""
        if self._is_owner:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        started = time.monotonic()
        for attempt in count(1):
            outcome = self._send(call)
            pause_s = self._pause_s(call, outcome, attempt, started)
            if pause_s is None:
                break
            time.sleep(pause_s)
        return self._result(call, outcome)

    def _send(self, call: Call[Any]) -> Outcome:
        try:
            return self._http.send(self._request(call), follow_redirects=False)
        except httpx.RequestError as failure:
            return failure

    def _walk(self, pages: Pages[R, T]) -> Iterator[T]:
        call = next(pages.calls)
        with suppress(StopIteration):
            while True:
                page = self._run(call)
                yield from pages.items(page)
                call = pages.calls.send(page)


class AsyncGlowClient(_Client[httpx.AsyncClient]):
    """Calls a GLOW service from asyncio, with the methods of `GlowClient`: `await` them, or iterate with `async for`.

    The tasks of one event loop may share a client. Canceling a task ends its request in the service, too.
    """

    _http_class = httpx.AsyncClient

    async def close(self) -> None:
        """Closes the connections."""
        if self._is_owner:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        started = time.monotonic()
        for attempt in count(1):
            outcome = await self._send(call)
            pause_s = self._pause_s(call, outcome, attempt, started)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
        return self._result(call, outcome)

    async def _send(self, call: Call[Any]) -> Outcome:
        try:
            return await self._http.send(self._request(call), follow_redirects=False)
        except httpx.RequestError as failure:
            return failure

    async def _walk(self, pages: Pages[R, T]) -> AsyncIterator[T]:
        call = next(pages.calls)
        with suppress(StopIteration):
            while True:
                page = await self._run(call)
                for item in pages.items(page):
                    yield item
                call = pages.calls.send(page)
