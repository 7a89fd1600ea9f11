"""New documents as a segment: stored, cut, tokenised and encoded by the rules that their index was built with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import BuildError, MismatchError
from glow.index import DOCUMENTS_FILE
from glow.index.delta import VECTORS_FILE, SegmentSlice, map_vectors
from glow.index.learned_sparse import LearnedWords, build_learned
from glow.index.passages import PassageMap, PassagesHeader, build_passages, passages_of
from glow.index.postings import IMPACTS_FOLDER, LEARNED_FOLDER, Bm25, ImpactHeader, ImpactIndex, build_lexical
from glow.index.spelling import SPELLING_FOLDER, SpellingTable, build_spelling
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.token_embeddings import STATES_FOLDER, StatesHeader, StatesWriter, TermStates
from glow.records import Document
from glow.runtime import Encoder, preprocess_documents
from glow.text import (
    Analyzer,
    PassageCutter,
    PassageOptions,
    Preprocessor,
    TermCounter,
    TermTable,
    WeightedTokens,
    field_words,
    lexical_words,
)
from glow_index_builder.encoding import LearnedEncoder, StatesEncoder

__all__ = ["Rules", "encode_texts", "write_segment"]

Advance = Callable[[int], None]
CHUNK_TEXTS = 32
"""Few, so that a hundred documents keep several threads busy."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """How an index treats its documents.

    Attributes:
        preprocessor: with the index's own term table.
        impacts: the header of its lexical index, whose average length and analyzer hold for what is added; None: it has
            none.
        stems: the table that the idf of the analyzer's terms comes from; the preprocessor's where words are terms.
        passages: how its bodies are cut; None: documents stay whole.
        dimensions: D.
        states: header of its term representations; None: it has none.
        learned: header of its learned impacts, whose unit and budget hold for what is added; None: it has none.
    """

    preprocessor: Preprocessor
    impacts: ImpactHeader | None
    stems: TermTable
    passages: PassagesHeader | None
    dimensions: int
    states: StatesHeader | None = None
    learned: ImpactHeader | None = None


def write_segment(
    documents: Iterable[Document],
    rules: Rules,
    encoder: Encoder | None,
    folder: Path,
    advance: Advance,
    threads: int = 1,
    states: StatesEncoder | None = None,
    learned: LearnedEncoder | None = None,
) -> SegmentSlice:
    """Writes documents as a segment, of which all stay.

    Args:
        documents: each id once.
        rules: the index's.
        encoder: the document tower, whose own threads are one; None where there is no document.
        folder: made, for working files.
        advance: told the documents or passages encoded.
        threads: of encoding, >= 1.
        states: reads documents for the re-ranker; None where there is no document, or the index has none.
        learned: makes learned impacts, likewise.

    Raises:
        MismatchError: if impacts that were learned, which nothing here can make.
        BuildError: if the model is broken, or the disk.
    """
    folder.mkdir()
    with DocumentWriter(folder / DOCUMENTS_FILE) as writer:
        for document in documents:
            writer.add(document)
    store = DocumentStore(folder / DOCUMENTS_FILE)
    passages = _cut(store, rules, folder)
    impacts = _index_words(store, rules, folder)

    def texts() -> Iterator[Document]:
        return passages_of(store.scan(), passages) if passages else store.scan()

    words: list[LearnedWords] = []
    count = encode_texts(
        texts(), rules.preprocessor, encoder, threads, folder / VECTORS_FILE, advance, learned, words
    )
    read = _read_states(texts(), rules, states, folder / STATES_FOLDER, threads)
    impacts_learned = _index_learned(words, rules, learned, folder / LEARNED_FOLDER, passages)
    vectors = map_vectors(folder / VECTORS_FILE, count, rules.dimensions)
    spelling = SpellingTable.open(folder / SPELLING_FOLDER) if impacts is not None else None
    every = np.ones(store.count, np.bool_)
    return SegmentSlice(
        store, lambda rows: vectors[rows], impacts, passages, spelling, read, impacts_learned, every
    )


def _read_states(
    texts: Iterable[Document],
    rules: Rules,
    encoder: StatesEncoder | None,
    folder: Path,
    threads: int,
) -> TermStates | None:
    """The texts' term representations, written and opened; None where the index has none."""
    if rules.states is None:
        return None
    waiting = iter(texts)
    with StatesWriter(folder, rules.states) as writer, ThreadPoolExecutor(threads) as pool:
        while chunks := [chunk for _ in range(threads) if (chunk := list(islice(waiting, CHUNK_TEXTS)))]:
            assert encoder is not None  # noqa: S101 - the caller has seen to it
            try:
                for coded in pool.map(encoder.encode, chunks):
                    writer.add(coded)
            except ValueError as error:
                raise BuildError(
                    f"the re-ranker cannot read {chunks[0][0].id!r} or a document after it: {error}"
                ) from error
        writer.close()
    return TermStates.open(folder)


def _index_learned(
    rows: Iterable[LearnedWords],
    rules: Rules,
    encoder: LearnedEncoder | None,
    folder: Path,
    passages: PassageMap | None,
) -> ImpactIndex | None:
    """The texts' learned impacts, written and opened; None where the index has none."""
    if rules.learned is None:
        return None
    words = encoder.words if encoder is not None else ()
    join = encoder.scorer.best_of if encoder is not None else None
    unit, budget = rules.learned.unit, int(rules.learned.parameters["budget"])
    build_learned(folder, rows, words, unit, budget, join, None if passages is None else passages.first)
    return ImpactIndex.open(folder)


def _cut(store: DocumentStore, rules: Rules, folder: Path) -> PassageMap | None:
    if rules.passages is None:
        return None
    wanted = PassageOptions(rules.passages.field, rules.passages.overlap, rules.passages.limit)
    return build_passages(store.scan(), PassageCutter(rules.preprocessor, wanted), folder)


def _index_words(store: DocumentStore, rules: Rules, folder: Path) -> ImpactIndex | None:
    if rules.impacts is None:
        return None
    if rules.impacts.kind != "bm25":
        raise MismatchError(
            f"the lexical index is of kind {rules.impacts.kind}, and only bm25 can be added to; build the index again"
        )
    preprocessor, parameters = rules.preprocessor, rules.impacts.parameters
    build_lexical(
        folder / IMPACTS_FOLDER,
        (lexical_words(document, preprocessor.schema, preprocessor.pieces) for document in store.scan()),
        _words(store, preprocessor),
        rules.stems,
        Bm25(parameters["k1"], parameters["b"]),
        average_length=parameters["average_length"],
        analyzer=Analyzer(rules.impacts.analyzer),
        on_words=partial(build_spelling, folder / SPELLING_FOLDER),
    )
    return ImpactIndex.open(folder / IMPACTS_FOLDER)


def _words(store: DocumentStore, preprocessor: Preprocessor) -> TermTable:
    """The documents' own words."""
    counter = TermCounter()
    for document in store.scan():
        counter.add(field_words(document, preprocessor.schema, preprocessor.pieces))
    return counter.table()


def encode_texts(
    texts: Iterable[Document],
    preprocessor: Preprocessor,
    encoder: Encoder | None,
    threads: int,
    path: Path,
    advance: Advance,
    learned: LearnedEncoder | None = None,
    words: list[LearnedWords] | None = None,
) -> int:
    """Encodes documents or passages into a new file of plain float32, row after row.

    Args:
        texts: in row order, read as they are needed.
        preprocessor: with the index's term table.
        encoder: the document tower, whose own threads are one; None where there is no text.
        threads: chunks that are encoded at the same time, >= 1.
        path: file to make.
        advance: told those encoded.
        learned: makes learned impacts in the same pass, in the encoder's place; None: there are none.
        words: gets the learned words of each.

    Returns:
        How many they are.

    Raises:
        BuildError: if a vector or a direction is not finite, so the model is broken.
    """

    def encode(chunk: list[Document]) -> list[tuple[NDArray[np.float32], list[LearnedWords]]]:
        found = []
        for each, _, sequences in preprocess_documents(chunk, preprocessor):
            try:
                vectors, kept = (
                    learned.encode(sequences, each) if learned else (_encode(encoder, sequences), [])
                )
            except ValueError as error:
                raise BuildError(f"{error}; export the learned impacts again") from error
            found.append((_finite(each, vectors), kept))
        return found

    count, waiting = 0, iter(texts)
    with path.open("wb") as file, ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
        while chunks := [chunk for _ in range(threads) if (chunk := list(islice(waiting, CHUNK_TEXTS)))]:
            for vectors, kept in (each for blocks in pool.map(encode, chunks) for each in blocks):
                if words is not None:
                    words.extend(kept)
                file.write(vectors.tobytes())
                count += len(vectors)
                advance(len(vectors))
    return count


def _encode(encoder: Encoder | None, sequences: Sequence[WeightedTokens]) -> NDArray[np.float32]:
    assert encoder is not None  # noqa: S101 - where there is a text
    return encoder.encode(sequences)


def _finite(chunk: list[Document], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        bad = chunk[int(np.flatnonzero(~finite)[0])].id
        raise BuildError(f"the vector of document {bad!r} is not finite; export the model again")
    return vectors
