"""A collection for training the head: frozen token embeddings of documents, words of queries, and BM25 scores.

n   documents       t   tokens of all documents     D   hidden size     W   words
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glow.index.postings import ImpactIndex, build_lexical
from glow.nn import Tower
from glow.records import Document
from glow.runtime import Encoder
from glow.text import (
    DEFAULT_ANALYZER,
    Analyzer,
    Preprocessor,
    batches_by_length,
    idf_lucene,
    is_lexical,
    lexical_tokens,
    lexical_words,
    pad,
)
from glow.training.candidates import Candidates

__all__ = ["ImpactsCollection", "WordVectors"]

MAX_QUERY_WORDS = 20
CHUNK_DOCUMENTS, BATCH_TOKENS = 512, 8192


class WordVectors:
    """Vectors of single words by the query tower, each computed once.

    Args:
        encoder: the query tower.
        preprocessor: splits words.
    """

    def __init__(self, encoder: Encoder, preprocessor: Preprocessor) -> None:
        self._encoder, self._preprocessor = encoder, preprocessor
        self._places: dict[str, int] = {}
        self._vectors = np.empty((0, encoder.dimensions), np.float32)

    def add(self, words: Iterable[str]) -> None:
        """Computes the missing vectors of words."""
        new = [word for word in dict.fromkeys(words) if word not in self._places]
        self._places.update((word, len(self._places)) for word in new)
        made = self._encoder.encode([self._preprocessor.query(word) for word in new])
        self._vectors = np.concatenate([self._vectors, made])

    def of(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of added words, float32 [W, D]."""
        return self._vectors[[self._places[word] for word in words]]


class ImpactsCollection:
    """One collection.

    Args:
        found: documents, queries, relevance judgments and first-stage hits.
        preprocessor: with the collection's own term statistics.
        folder: directory of token embeddings and BM25 impacts.

    Attributes:
        words: words of each query that a lexical index holds.
        vocabulary: words of at least two documents, and their sampling probabilities for the penalty, float64.
    """

    def __init__(self, found: Candidates, preprocessor: Preprocessor, folder: Path) -> None:
        self.found, self._preprocessor, self._folder = found, preprocessor, folder
        collection, pieces = found.collection, preprocessor.pieces
        self.words = [
            [word for word in pieces.words(text) if is_lexical(word)][:MAX_QUERY_WORDS]
            for text in collection.queries
        ]
        counted = [(word, df) for word, df in preprocessor.terms.items() if is_lexical(word) and df > 1]
        likely = np.sqrt(np.array([df for _, df in counted], np.float64))
        self.vocabulary = [word for word, _ in counted], likely / max(likely.sum(), 1.0)

    @cached_property
    def bm25(self) -> ImpactIndex:
        """BM25 impacts of the documents, as in an index."""
        own, folder = self._preprocessor, self._folder / "impacts"
        analyzer = Analyzer(DEFAULT_ANALYZER)
        words = [
            list(lexical_words(each, own.schema, own.pieces)) for each in self.found.collection.documents
        ]
        build_lexical(folder, words, own.terms, analyzer.table(own.terms), analyzer=analyzer)
        return ImpactIndex.open(folder)

    def word_counts(self) -> Counter[str]:
        """Number of occurrences of each word in the queries."""
        return Counter(word for words in self.words for word in words)

    def idf(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Idf of words by the collection's own statistics, float32 [W]."""
        terms = self._preprocessor.terms
        documents = max(terms.documents, 1)
        dfs = np.array([min(max(terms.df(word), 1), documents) for word in words], np.float64)
        return idf_lucene(dfs, float(documents)).astype(np.float32)

    def encode(self, tower: Tower, advance: Callable[[int], None] = lambda done: None) -> None:
        """Writes the document tower's float16 embeddings of tokens that can represent words; keeps existing files.

        Args:
            tower: the frozen document tower.
            advance: called with the number of documents done.
        """
        path, sizes_path = self._folder / "states.f16", self._folder / "sizes.npy"
        if sizes_path.is_file():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        documents, sizes = self.found.collection.documents, []
        with path.open("wb") as file:
            for start in range(0, len(documents), CHUNK_DOCUMENTS):
                for states in self._states(tower, documents[start : start + CHUNK_DOCUMENTS]):
                    file.write(states.tobytes())
                    sizes.append(len(states))
                advance(len(sizes))
        np.save(sizes_path, np.array(sizes, np.int64))

    def _states(self, tower: Tower, documents: Sequence[Document]) -> list[NDArray[np.float16]]:
        sequences = [self._preprocessor.document(document) for document in documents]
        made: dict[int, NDArray[np.float16]] = {}
        for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
            batch = pad([sequences[row] for row in rows], self._preprocessor.pieces.pad_id)
            arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
            with torch.inference_mode():
                states = tower.states(*(torch.from_numpy(array) for array in arrays)).float().numpy()
            for place, row in enumerate(rows):
                made[row] = states[place, lexical_tokens(sequences[row])].astype(np.float16)
        return [made[row] for row in range(len(sequences))]

    @cached_property
    def _stored(self) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
        sizes = np.load(self._folder / "sizes.npy")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        flat = np.memmap(self._folder / "states.f16", np.float16, "r")
        return starts, flat.reshape(int(starts[-1]), -1)

    def states(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token embeddings, float32 [n, L, D], and their mask, bool [n, L]; a document without tokens has a masked row."""
        starts, flat = self._stored
        sizes = starts[rows + 1] - starts[rows]
        states = np.zeros((len(rows), max(int(sizes.max(initial=0)), 1), flat.shape[1]), np.float32)
        for place, (row, size) in enumerate(zip(rows.tolist(), sizes.tolist(), strict=True)):
            states[place, :size] = flat[starts[row] : starts[row] + size]
        mask = np.arange(states.shape[1]) < sizes[:, None]
        return torch.from_numpy(states), torch.from_numpy(mask)
