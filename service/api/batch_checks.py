"""Limits of a batch as a whole, and the checks of its searches, which must not block the event loop."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from glow.errors import GlowError
from glow.index import Index
from glow.index.columns.filters import count_terms
from glow_service.access import Tenant, confined
from glow_service.api.answers import LONG_FILTER
from glow_service.api.context import RequestContext
from glow_service.errors import AnswerTooLargeError, DeadlineError, Fault, RequestError
from glow_service.search import CheckedSearch, Deadline, check_search
from glow_service.settings import Settings
from glow_service.state import Service

__all__ = ["AnswerRoom", "check_searches"]

LONGEST_STRETCH_S = 0.002
"""Longest time of checks without giving the event loop a turn."""


class AnswerRoom:
    """The remaining bytes for the results of a batch.

    Results whose hits may be cut are already limited to their part, so they always pass.

    Args:
        most: bytes of all results, >= 1.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, answer: bytes, *, may_cut: bool) -> bytes:
        """Accepts a result.

        Args:
            answer: result of one search.
            may_cut: whether its hits could be cut.

        Raises:
            AnswerTooLargeError: if the earlier results left too few bytes.
        """
        if not may_cut and len(answer) > self._left:
            raise AnswerTooLargeError(
                f"the results of the batch exceed {self._most} bytes (max_answer_bytes); send fewer searches at once, "
                "request fewer hits or fields, or remove allow_truncated"
            )
        self._left = max(self._left - len(answer), 0)
        return answer


async def check_searches(
    service: Service, context: RequestContext, index: Index, searches: Sequence[dict[str, Any]]
) -> list[CheckedSearch | Exception]:
    """Checks every search of a batch.

    Args:
        service: the service.
        context: context of the batch request.
        index: the version to search.
        searches: the received searches.

    Returns:
        Each checked search, or its error.

    Raises:
        RequestError: if they exceed a limit of the batch.
        DeadlineError: if the deadline passes.
    """
    pool, deadline, tenant = service.bulk.pool, context.deadline, context.tenant
    confine = partial(_confined, tenant, index, deadline)
    if tenant is not None:
        kept = await pool.run_by(deadline, lambda: [confine(search) for search in searches])
    else:
        kept = list(searches)
    searches = [each if isinstance(each, dict) else {} for each in kept]
    terms = await pool.run_by(deadline, _count, searches)
    _check_terms(sum(terms), service.settings)
    checked: list[CheckedSearch | Exception] = []
    paused = time.perf_counter()
    for search, count, fault in zip(searches, terms, kept, strict=True):
        if isinstance(fault, Exception):
            checked.append(fault)
        elif count > LONG_FILTER:
            checked.append(await pool.run_by(deadline, _check, service, index, search))
        else:
            checked.append(_check(service, index, search))
        if time.perf_counter() - paused > LONGEST_STRETCH_S:
            await asyncio.sleep(0)
            deadline.check()
            paused = time.perf_counter()
    _check_explained(checked, service.settings)
    return [_with_share(each, len(searches)) for each in checked]


def _confined(
    tenant: Tenant | None, index: Index, deadline: Deadline, search: dict[str, Any]
) -> dict[str, Any] | GlowError:
    try:
        return confined(search, tenant, index, deadline.check)
    except DeadlineError:
        raise
    except GlowError as error:
        return error


def _count(searches: Sequence[dict[str, Any]]) -> list[int]:
    return [
        sum(count_terms(search[name]) for name in ("filter", "boosts") if name in search)
        for search in searches
    ]


def _check(service: Service, index: Index, search: dict[str, Any]) -> CheckedSearch | Exception:
    try:
        return check_search(search, service.limits, index)
    except GlowError as error:
        return error


def _check_terms(terms: int, settings: Settings) -> None:
    most = settings.max_batch_filter_terms
    if terms > most:
        detail = f"the filters have {terms} terms in total, expected at most {most}; send several batches"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])


def _check_explained(checked: Sequence[CheckedSearch | Exception], settings: Settings) -> None:
    calls = [each.call for each in checked if isinstance(each, CheckedSearch)]
    hits = sum(call.top_k for call in calls if call.explain is not None)
    most = settings.max_batch_explained_hits
    if hits > most:
        detail = f"the searches explain up to {hits} hits in total, expected at most {most}; request fewer"
        raise RequestError(f"/searches: {detail}", [Fault("/searches", detail)])


def _with_share(search: CheckedSearch | Exception, searches: int) -> CheckedSearch | Exception:
    """Limits a search whose hits may be cut to an equal part of the response."""
    if isinstance(search, Exception) or not search.call.may_cut:
        return search
    return replace(search, call=replace(search.call, max_bytes=max(search.call.max_bytes // searches, 1)))
