"""Collections for NDRM: numbered terms of documents and queries, their statistics, and initial vectors of the terms.

V   terms, 0 for padding and unknown terms          E   dimensions of a term's vector       T, L   terms of a query, a document
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glow.errors import DependencyError
from glow.nn import load_weights, minilm_folder
from glow.records import Document
from glow.text import DEFAULT_ANALYZER, Analyzer, WordPieces, is_lexical
from glow.training.data import Collection
from research.ndrm.model import TermStatistics

__all__ = ["TermCollection", "Vocabulary", "first_vectors", "skip_gram_vectors"]

QUERY_TERMS = 20
DOCUMENT_TERMS = 4000
MIN_COUNT = 2
SKIP_GRAM = {"vector_size": 128, "window": 10, "epochs": 5, "sg": 1, "workers": 1, "seed": 0}
"""As in the paper, except its least count of 100, which suits millions of documents; here it is `MIN_COUNT`."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Numbered terms.

    Attributes:
        places: term -> its number, from 1.
        words: the most frequent word of each number's term; the first is empty.
    """

    places: dict[str, int]
    words: list[str]

    def __len__(self) -> int:
        return len(self.words)


class TermCollection:
    """A collection as numbered terms.

    Args:
        collection: documents and queries.
        pieces: splits words.
        clicked: whether clicked queries count as text, before the other fields (as ORCAS queries in the paper).
        vocabulary: of another split of the same documents; None: built from these documents and queries.
        longest: document terms that the latent part reads.

    Attributes:
        documents, queries: int64 term numbers of each; a query has at most `QUERY_TERMS`.
        lengths: float32 [n], number of terms of each document, including unknown ones.
        idf: float32 [V], max(ln((n - df + .5) / (df + .5)), 0).
    """

    def __init__(
        self,
        collection: Collection,
        pieces: WordPieces,
        *,
        clicked: bool = False,
        vocabulary: Vocabulary | None = None,
        longest: int = DOCUMENT_TERMS,
    ) -> None:
        self.collection, self._pieces, self._longest = collection, pieces, longest
        self._analyzer = Analyzer(DEFAULT_ANALYZER)
        texts = [self._terms(_text(document, clicked=clicked)) for document in collection.documents]
        asked = [self._terms([query])[:QUERY_TERMS] for query in collection.queries]
        self.vocabulary = vocabulary or _vocabulary([*texts, *asked])
        self.documents = [self._numbers(text) for text in texts]
        self.queries = [self._numbers(query) for query in asked]
        self.lengths = np.array([len(text) for text in texts], np.float32)
        self.counts = [Counter(document.tolist()) for document in self.documents]
        df = Counter(place for counts in self.counts for place in counts)
        dfs = np.array([df[place] for place in range(len(self.vocabulary))], np.float64)
        documents = len(texts)
        self.idf = np.maximum(np.log((documents - dfs + 0.5) / (dfs + 0.5)), 0.0).astype(np.float32)
        self.idf[0] = 0.0

    def _terms(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        words = (word for text in texts for word in self._pieces.words(text) if is_lexical(word))
        return [(self._analyzer.term(word), word) for word in words]

    def _numbers(self, terms: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        places = self.vocabulary.places
        return np.array([places.get(term, 0) for term, _ in terms], np.int64)

    def padded(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Terms of documents, int64 [n, L], and their mask, bool [n, L]; at least one, perhaps unknown, term each."""
        documents = [self.documents[row][: self._longest] for row in rows]
        longest = max(max(len(document) for document in documents), 1)
        ids = np.zeros((len(rows), longest), np.int64)
        mask = np.zeros((len(rows), longest), np.bool_)
        for place, document in enumerate(documents):
            ids[place, : len(document)] = document
            mask[place, : max(len(document), 1)] = True
        return torch.from_numpy(ids), torch.from_numpy(mask)

    def statistics(self, terms: Tensor, rows: NDArray[np.int64], mask: Tensor) -> TermStatistics:
        """Statistics of terms int64 [Q, T] in documents int64 [Q, D], as [Q, D, T]; mask bool [Q, T]."""
        asked = terms.tolist()
        tf = [
            [[self.counts[row][term] if term else 0 for term in one] for row in own]
            for one, own in zip(asked, rows.tolist(), strict=True)
        ]
        idf = torch.from_numpy(self.idf)[terms][:, None]
        length = torch.from_numpy(self.lengths[rows])[..., None]
        return TermStatistics(torch.tensor(tf, dtype=torch.float32), idf, length, mask[:, None])


def _text(document: Document, *, clicked: bool) -> list[str]:
    fields = dict(document.fields)
    own = fields.pop("clicked_queries", ())
    fields.pop("url", None)
    return [*(own if clicked else ()), *(text for texts in fields.values() for text in texts)]


def _vocabulary(texts: Sequence[Sequence[tuple[str, str]]]) -> Vocabulary:
    counted = Counter(pair for text in texts for pair in text)
    totals: Counter[str] = Counter()
    best: dict[str, str] = {}
    for (term, word), count in counted.most_common():
        totals[term] += count
        best.setdefault(term, word)
    kept = [term for term, count in totals.most_common() if count >= MIN_COUNT]
    return Vocabulary(
        {term: place for place, term in enumerate(kept, 1)}, ["", *(best[term] for term in kept)]
    )


def first_vectors(vocabulary: Vocabulary, pieces: WordPieces) -> Tensor:
    """Float [V, E]: the normalized mean of the MiniLM token embeddings of each term's most frequent word."""
    table = load_weights(minilm_folder())["embeddings.word_embeddings.weight"].float()
    ids = [pieces.pieces(word) for word in vocabulary.words[1:]]
    means = [table[torch.tensor(each)].mean(0) for each in ids]
    return torch.nn.functional.normalize(torch.stack([torch.zeros(table.shape[1]), *means]), dim=-1)


def skip_gram_vectors(collection: TermCollection) -> Tensor:
    """Float [V, 256]: skip-gram vectors trained on documents and queries, input and output side by side (the paper's).

    Raises:
        DependencyError: if gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise DependencyError("skip-gram vectors need gensim: pip install gensim") from error
    texts = [[str(term) for term in text if term] for text in (*collection.documents, *collection.queries)]
    model = Word2Vec(texts, min_count=1, negative=5, **SKIP_GRAM)
    size = int(SKIP_GRAM["vector_size"])
    vectors = np.zeros((len(collection.vocabulary), 2 * size), np.float32)
    for place in range(1, len(vectors)):
        if (row := model.wv.key_to_index.get(str(place))) is not None:
            vectors[place] = np.concatenate([model.wv.vectors[row], model.syn1neg[row]])
    return torch.from_numpy(vectors)
