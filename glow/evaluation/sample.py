"""A deterministic sample of distinct texts from a stream of any length."""

import hashlib
import heapq
from collections.abc import Iterable

__all__ = ["sample_texts"]


def sample_texts(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """At most `count` distinct texts, those with the smallest hashes, so the order of the stream does not matter.

    Args:
        texts: read once; blank ones are skipped. Memory grows only with `count`.
        count: >= 1.
        seed: each seed gives another sample.

    Returns:
        The sample, in hash order.
    """
    kept: dict[str, int] = {}
    heap: list[tuple[int, str]] = []  # the largest hash first
    for text in texts:
        if not text.strip() or text in kept:
            continue
        digest = hashlib.blake2b(f"{seed}\n{text}".encode("utf-8", "replace"), digest_size=8).digest()
        value = int.from_bytes(digest, "big")
        if len(heap) == count:
            if value >= -heap[0][0]:
                continue
            del kept[heapq.heappop(heap)[1]]
        kept[text] = value
        heapq.heappush(heap, (-value, text))
    return sorted(kept, key=kept.__getitem__)
