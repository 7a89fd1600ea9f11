"""What a type checker sees of both clients' methods: mypy reads this file (`make check`), and nothing runs it."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from glow.client import AsyncGlowClient, GlowClient, Hit, SearchResult


async def check(client: GlowClient, waiting: AsyncGlowClient) -> None:
    """An ignored error that is none is an error itself."""
    assert_type(client.search("bees", top_k=3), SearchResult)
    assert_type(await waiting.search("bees", top_k=3), SearchResult)
    assert_type(client.search_hits("bees", limit=3), Iterator[Hit])
    assert_type(waiting.search_hits("bees", limit=3), AsyncIterator[Hit])
    client.search("bees", nope=3)  # type: ignore[call-arg]
    await waiting.patch("id")  # type: ignore[call-arg]
