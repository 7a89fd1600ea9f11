"""Second stage: stored documents become vectors in a file, in bounded memory.

Texts are preprocessed in Python while towers run outside it, so each thread takes a chunk of documents through both, and
the parts overlap. Chunks are cut by position alone, so the same documents give the same vectors with any number
of threads.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import BuildError
from glow.records import Document
from glow.runtime import Encoder, encode_documents
from glow.text import Preprocessor

__all__ = ["encode_corpus", "map_vectors"]

CHUNK_DOCUMENTS = 256
CHUNK_CHARACTERS = 4 << 20
Encoded = tuple[dict[str, int], NDArray[np.float32]]


def encode_corpus(
    documents: Iterable[Document],
    preprocessor: Preprocessor,
    encoder: Encoder,
    threads: int,
    path: Path,
    advance: Callable[[int], None],
) -> dict[str, int]:
    """Encodes documents in order and appends their vectors to a new file, float32, row after row.

    Args:
        documents: documents or passages in row order, read as they are needed.
        preprocessor: with the index's term table.
        encoder: the document tower, whose own threads are one.
        threads: chunks that are encoded at the same time, >= 1.
        path: file to make.
        advance: told the documents done.

    Returns:
        Field -> how many of them lost words of it to its token budget.

    Raises:
        BuildError: a vector is not finite, so the model is broken.
    """
    truncated: Counter[str] = Counter()
    row = 0

    def encode(chunk: list[Document]) -> list[Encoded]:
        return [found[1:] for found in encode_documents(chunk, preprocessor, encoder)]

    with path.open("wb") as file:
        for parts in _in_order(encode, _chunks(documents), threads):
            for lost, vectors in parts:
                if not np.isfinite(vectors).all():
                    bad = row + int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
                    raise BuildError(f"the vector of row {bad} is not finite; export the model again")
                file.write(vectors.tobytes())
                truncated.update(lost)
                row += len(vectors)
                advance(len(vectors))
    return dict(truncated)


def map_vectors(path: Path, count: int, dimensions: int) -> NDArray[np.float32]:
    """The vectors of a file, memory-mapped: float32 [count, D]."""
    return np.memmap(path, np.float32, "r", shape=(count, dimensions))


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Cuts a stream by number and by size, so that long documents take no more memory than short ones."""
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += sum(len(value) for values in document.fields.values() for value in values)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _in_order(
    work: Callable[[list[Document]], list[Encoded]], chunks: Iterable[list[Document]], threads: int
) -> Iterator[list[Encoded]]:
    """Maps chunks on threads; results come in order, and at most one chunk more than threads is held."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="encode")
    waiting: deque[Future[list[Encoded]]] = deque()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
