"""A corpus in memory, equal to an index of it: the same preprocessing, term statistics, towers, vectors and impacts.

n   documents       D   dimensions
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import documents_hash
from glow.evaluation.task import Corpus
from glow.index import Index, Rows, View
from glow.index.models import Models
from glow.index.postings import IMPACTS_FOLDER, POSTINGS, ImpactIndex, build_lexical
from glow.index.segment import Segment
from glow.index.spelling import SPELLING_FOLDER, Speller, SpellingTable, build_spelling
from glow.index.vectors import VECTORS, build_dense
from glow.records import Document
from glow.runtime import Device, Model, preprocess_documents
from glow.text import (
    DEFAULT_ANALYZER,
    Analyzer,
    AnalyzerName,
    CorpusCounter,
    Preprocessor,
    TermStats,
    TermTable,
    check_analyzer,
    field_words,
    lexical_words,
    select_terms,
)

Progress = Callable[[int, int], None]
"""Called with the numbers of documents encoded so far and in all."""


@dataclass(frozen=True, slots=True)
class DenseOptions:
    """Options of encoding."""

    term_stats: TermStats = "corpus"  # source of idf, as for the builder
    analyzer: AnalyzerName = DEFAULT_ANALYZER  # makes the terms of a lexical index, as for the builder
    device: Device = "cpu"  # for towers and index
    threads: int = 1
    cache: Path | None = None  # directory that keeps document vectors between runs


def corpus_index(
    model: Model,
    corpus: Corpus,
    options: DenseOptions,
    *,
    has_words: bool,
    progress: Progress | None = None,
) -> tuple[Index, list[str]]:
    """An encoded corpus with exact vectors and optionally a lexical component, and the documents' ids in row order.

    Documents without text in the model's fields are left out, as in a build. Nothing is stored of documents but ids. Ids and
    metadata are not indexed, because in judged collections they may name the answer.
    """
    if has_words:
        check_analyzer(options.analyzer, model.preprocessor.weighting.unit)
    analyzer = Analyzer(options.analyzer if has_words else "plain")
    own = model.preprocessor.terms
    ids, corpus_words, corpus_terms, vocabulary = _statistics(model, corpus, analyzer)
    terms = select_terms(options.term_stats, corpus_words, own)
    preprocessor = model.with_terms(terms, caps_unknown=True)
    encoder = model.encoder("query", options.device, options.threads)
    shape = (len(ids), encoder.dimensions)
    path = _cache_path(model, corpus, terms, options)
    vectors = _cached(path, shape)
    if vectors is None:
        vectors = _encode(model, corpus, preprocessor, options, shape, progress)
        _store(path, vectors)
    readers: dict[str, Any] = {VECTORS.name: build_dense(vectors, "flat")}
    # Mapped files outlive their directory.
    with tempfile.TemporaryDirectory(prefix="glow-corpus-") as temporary:
        folder = Path(temporary)
        if has_words:
            schema, pieces = preprocessor.schema, preprocessor.pieces
            stems = select_terms(options.term_stats, corpus_terms, analyzer.table(own))
            spell = partial(build_spelling, folder / SPELLING_FOLDER)
            build_lexical(
                folder / IMPACTS_FOLDER,
                (lexical_words(each, schema, pieces) for each in _documents(model, corpus)),
                vocabulary,
                stems,
                analyzer=analyzer,
                on_words=spell,
            )
            readers[POSTINGS.name] = ImpactIndex.open(folder / IMPACTS_FOLDER)
        rows = Rows(len(ids))
        view = View("of a corpus in memory", rows, readers)
        speller = _speller(preprocessor, view, corpus_words, folder)
    models = Models({}, (options.device, options.threads), preprocessor, encoder, None, None)
    base = Segment(view.name, folder, folder, "", {}, {}, {}, rows, options.device, readers)
    return Index(model.manifest, models, base, None, view, _id_ranks(ids), speller=speller), ids


def _speller(preprocessor: Preprocessor, view: View, words: TermTable, folder: Path) -> Speller | None:
    """The spelling corrector of an index of the corpus, which always holds words."""
    if preprocessor.weighting.unit != "word":
        return None
    if not view.holds(POSTINGS):
        build_spelling(folder / SPELLING_FOLDER, words.items())
    table = SpellingTable.open(folder / SPELLING_FOLDER)
    return Speller(preprocessor.pieces, preprocessor.terms, [table], view.get(POSTINGS))


def _id_ranks(ids: Sequence[str]) -> NDArray[np.uint32]:
    ranks = np.empty(len(ids), np.uint32)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.uint32)
    return ranks


def _documents(model: Model, corpus: Corpus) -> Iterator[Document]:
    names = model.preprocessor.schema.names
    for document in corpus:
        if any(text.strip() for name in names for text in document.fields.get(name, ())):
            yield document


def _statistics(
    model: Model, corpus: Corpus, analyzer: Analyzer
) -> tuple[list[str], TermTable, TermTable, TermTable]:
    """Ids, and the statistics of the encoder's words, and of the lexical index's terms and words."""
    counter = CorpusCounter(analyzer)
    ids = []
    own = model.preprocessor
    for document in _documents(model, corpus):
        ids.append(document.id)
        counter.add(field_words(document, own.schema, own.pieces))
    return ids, *counter.tables()


def _encode(
    model: Model,
    corpus: Corpus,
    preprocessor: Preprocessor,
    options: DenseOptions,
    shape: tuple[int, int],
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Encodes all documents."""
    vectors = np.empty(shape, np.float32)
    encoder = model.encoder("document", options.device, options.threads)
    done = 0
    for chunk, _, sequences in preprocess_documents(_documents(model, corpus), preprocessor):
        vectors[done : done + len(chunk)] = encoder.encode(sequences)
        done += len(chunk)
        if progress is not None:
            progress(done, shape[0])
    return vectors


def _cache_path(model: Model, corpus: Corpus, terms: TermTable, options: DenseOptions) -> Path | None:
    """A path that depends on everything that decides documents' vectors; models of one document encoder share it."""
    if options.cache is None:
        return None
    parts = [
        documents_hash(model.manifest.files),
        corpus.hash,
        list(corpus.fields),
        terms.hash,
        options.device,
    ]
    return options.cache / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.npy"


def _cached(path: Path | None, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """Cached vectors, or None if there are no usable ones."""
    if path is None or not path.is_file():
        return None
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    usable = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.shape == shape
    return vectors if usable else None


def _store(path: Path | None, vectors: NDArray[np.float32]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial.npy")
    np.save(temporary, vectors, allow_pickle=False)
    temporary.replace(path)  # so that a stopped run leaves no incomplete file under the final name
