"""Encodes a few texts, those of an upsert, in this process."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from glow.errors import BuildError
from glow.index import COMPONENTS, Encoded, EncodeJob
from glow.records import Document
from glow_index_builder.encoding.record_files import EncodedFiles, EncodedTexts, write_texts
from glow_index_builder.encoding.text_encoder import EncodeError, TextEncoder

__all__ = ["encode_texts", "no_texts"]

CHUNK_TEXTS = 32
"""Small, so that a hundred documents keep several threads busy."""
NAME = "texts"


def encode_texts(
    texts: Iterable[Document],
    encoder: TextEncoder,
    threads: int,
    folder: Path,
    advance: Callable[[int], None],
    jobs: Mapping[str, EncodeJob],
) -> Encoded:
    """Encodes documents or passages into one set of files.

    Args:
        texts: in row order, read as needed.
        encoder: with an encoder for each job.
        threads: chunks to encode at the same time, >= 1.
        folder: directory for the files `texts.*`; they must stay while the result is read.
        advance: called with the number encoded.
        jobs: name of a component -> its encoding job.

    Raises:
        BuildError: if the model is broken: a vector is not finite or records cannot be made.
        OSError: if the disk is full or cannot be written.
    """
    ids: list[str] = []
    report = write_texts(folder, NAME, ids, _parts(texts, encoder, threads, ids, advance))
    dtypes = {name: job.dtype for name, job in jobs.items()}
    return EncodedFiles(folder, [NAME], [report.rows], encoder.dimensions, dtypes)


def no_texts(folder: Path, dimensions: int) -> Encoded:
    """The result for zero texts: an empty array of vectors of dimension D, and no records; the directory is not read."""
    return EncodedFiles(folder, [], [], dimensions, {})


def _parts(
    texts: Iterable[Document],
    encoder: TextEncoder,
    threads: int,
    ids: list[str],
    advance: Callable[[int], None],
) -> Iterator[EncodedTexts]:
    waiting = iter(texts)
    with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
        while chunks := [chunk for _ in range(threads) if (chunk := list(islice(waiting, CHUNK_TEXTS)))]:
            ids += [text.id for chunk in chunks for text in chunk]
            try:
                for part in pool.map(encoder.encode, chunks):
                    yield part
                    advance(len(part.vectors))
            except EncodeError as error:
                label = next((each.label for each in COMPONENTS if each.name == error.component), "model")
                raise BuildError(f"{error}; export the {label} again") from error
