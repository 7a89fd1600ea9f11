"""A sample of different texts from a stream of any length, the same each time."""

import hashlib
import heapq
from collections.abc import Iterable

__all__ = ["sample_texts"]


def sample_texts(texts: Iterable[str], count: int, seed: int = 0) -> list[str]:
    """At most `count` different texts, those whose hashes are the smallest: a text is in or out whatever its place.

    Args:
        texts: read once; blank ones are passed over. Memory grows with `count` alone.
        count: >= 1.
        seed: another seed, another sample.

    Returns:
        The sample, in the order of the hashes.
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
