"""The common part of both clients: address, key and time limits of the service, requests and outcomes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from glow import __version__
from glow.client.calls import Call
from glow.client.problems import raise_failure
from glow.client.retry import Outcome, Retries, RetryPolicy
from glow.errors import ConfigError

__all__ = ["LIMITS", "Connection", "as_method"]

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
_NEVER_AGAIN = RetryPolicy(attempts=1)
# The service closes connections that are idle for 5 s; expiring them earlier keeps a request from being cut off.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a service.

    Attributes:
        base_url: `http://` or `https://` address; a trailing slash is ignored.
        api_key: sent as `Authorization: Bearer`; None for a service without keys. Never shown.
        timeout_s: time limit of one attempt, in seconds.
        policy: when to retry.
        max_response_bytes: largest decoded response body.

    Raises:
        ConfigError: if the address is invalid, or the key contains characters that a header cannot.
    """

    base_url: str
    api_key: str | None = field(repr=False)
    timeout_s: float
    policy: RetryPolicy
    max_response_bytes: int

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ConfigError(
                f"base_url {self.base_url!r:.80} is not an address; expected one such as http://127.0.0.1:8080"
            )
        key = self.api_key
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                "the API key is empty or has characters that a header cannot contain; copy the whole key again"
            )

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[T]) -> httpx.Request:
        """The request of a call."""
        headers = {"User-Agent": f"glow-client/{__version__}", "Accept": "application/json"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        url = self.base_url.rstrip("/") + call.path
        return http.build_request(call.method, url, json=call.body, headers=headers, timeout=self.timeout_s)

    def retries(self, call: Call[T]) -> Retries:
        """Retry state of a call that starts now."""
        return Retries(self.policy if call.is_repeatable else _NEVER_AGAIN)

    def answer(self, call: Call[T], outcome: Outcome) -> T:
        """Result of a call, from the outcome of its last attempt.

        Raises:
            ClientError: if there is no response, a problem, or an invalid response.
        """
        if isinstance(outcome, httpx.RequestError):
            raise_failure(outcome, self.base_url)
        return call.read(outcome)


def _is_address(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not url.query and not url.fragment


def as_method(method: M, make: Callable[..., Any]) -> M:
    """Gives a client's method the name, documentation and arguments of the function that makes its call."""
    signature = inspect.signature(make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    arguments = [own, *signature.parameters.values()]
    vars(method)["__signature__"] = signature.replace(
        parameters=arguments, return_annotation=inspect.Signature.empty
    )
    return method
