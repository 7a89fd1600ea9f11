"""Why a text has its vector: words, the weights that the tower read, and where it looked.

The figures come from the towers themselves: the weights are the input of the run, the attention is its second output. The
towers with that output are opened on the first request, so that a service that is never asked pays nothing.

    n   texts       w   different words of a query      D   dimensions      L   tokens
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, EXPLAIN_TOWERS, QUERY_TOWER
from glow.errors import FormatError
from glow.records import Document
from glow.runtime.encoder import VECTOR, Encoder
from glow.runtime.session import Device
from glow.text import QUERY, Preprocessor, WeightedTokens, batches_by_length, field_words, is_punctuation

__all__ = ["ATTENTION", "AttentionEncoder", "ExplainedWord", "Explainer", "Explanation", "TermAblation"]

ATTENTION = "attention"
MAX_BATCH_TOKENS = 512
"""Small batches stay in a core's cache, as in a build."""


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """A word in one field of a text, as its tower read it.

    Attributes:
        field: of the schema, or `query`.
        word: as preprocessing yields it.
        tf: how often the field holds it, before truncation, which is what the weight was worked out from.
        idf: from the index's term table; finite, >= 0.
        weight: what the tower read on each of the word's pieces; the same in every field of a document.
        attention: share in [0, 1] of the attention of [CLS] in the last layer, mean over heads, that the word's pieces
            get at all its places in the field.
    """

    field: str
    word: str
    tf: int
    idf: float
    weight: float
    attention: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """One query or document.

    Attributes:
        terms: every word that reached the tower, once for each field: most attended first, of equals as in the text.
        specials: attention on [CLS] and [SEP]; with that of all terms it makes 1.
        vector: float32 [D], L2-normalised, bit for bit that of the plain tower.
    """

    terms: tuple[ExplainedWord, ...]
    specials: float
    vector: NDArray[np.float32]

    def attended_words(self, count: int = 5) -> tuple[str, ...]:
        """The words, summed over fields and without punctuation, that get most attention; at most `count`."""
        sums: dict[str, float] = {}
        for term in self.terms:
            if not is_punctuation(term.word):
                sums[term.word] = sums.get(term.word, 0.0) + term.attention
        return tuple(sorted(sums, key=lambda word: -sums[word])[:count])


@dataclass(frozen=True, slots=True)
class TermAblation:
    """What leaving a word out of the query does to each hit's cosine: `deltas[i]`, negative where it falls."""

    word: str
    deltas: tuple[float, ...]


class AttentionEncoder:
    """A tower that tells where it looked; arguments as `Encoder`, of an explain graph.

    Raises:
        FormatError: if the graph has no output `attention`; else as `Encoder`.
    """

    def __init__(self, path: Path, pad_id: int = 0, device: Device = "cpu", threads: int = 1) -> None:
        self.tower = Encoder(path, pad_id, device, threads, MAX_BATCH_TOKENS)
        if ATTENTION not in self.tower.outputs:
            raise FormatError(
                f"{path.name} has outputs {self.tower.outputs}, expected {ATTENTION!r} among them; make the explain "
                "graphs anew: glow export-model --add-explain"
            )

    def run(self, sequences: Sequence[WeightedTokens]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors float32 [n, D] and attention of [CLS] float32 [n, L] of one padded batch; 0 on padding."""
        vectors, attention = self.tower.run_outputs(sequences, [VECTOR, ATTENTION])
        return vectors, attention


class Explainer:
    """Explains queries and documents of one index version; safe to use from many threads.

    Args:
        folder: holds the explain graphs with their weights (`glow.artifact.model.EXPLAIN_FILES`).
        preprocessor: of the index, whose term table the towers' weights come from.
        device, threads: as for `Encoder`.
    """

    def __init__(
        self, folder: Path, preprocessor: Preprocessor, device: Device = "cpu", threads: int = 1
    ) -> None:
        self._folder = folder
        self._preprocessor = preprocessor
        self._device: Device = device
        self._threads = threads
        self._lock = threading.Lock()
        self._towers: dict[str, AttentionEncoder] = {}

    @property
    def is_open(self) -> bool:
        """Whether both towers have been opened, which the first request does: nothing is read from the folder any more."""
        return len(self._towers) == len(EXPLAIN_TOWERS)

    def explain_query(self, text: str) -> Explanation:
        """Explains a query; one without a word has no terms.

        Raises:
            ArtifactError: if a graph cannot be opened.
        """
        tokens = self._preprocessor.query(text)
        fields = {QUERY: self._preprocessor.pieces.words(text)}
        vectors, attention = self._tower(QUERY_TOWER).run([tokens])
        return self._explanation(tokens, fields, attention[0], vectors[0])

    def explain_document(self, document: Document) -> Explanation:
        """Explains one document; as `explain_documents`."""
        return self.explain_documents([document])[0]

    def explain_documents(
        self, documents: Sequence[Document], check: Callable[[], None] = lambda: None
    ) -> list[Explanation]:
        """Explains documents (or passages, as documents of their own), in the order given.

        Args:
            documents: to encode, in batches of like lengths.
            check: called before every document that is read and every batch; what it raises ends the work.

        Raises:
            ArtifactError: if a graph cannot be opened.
        """
        own = self._preprocessor
        sequences = []
        for document in documents:
            check()
            sequences.append(own.document(document))
        explanations: dict[int, Explanation] = {}
        for rows in batches_by_length([len(sequence) for sequence in sequences], MAX_BATCH_TOKENS):
            check()
            vectors, attention = self._tower(DOCUMENT_TOWER).run([sequences[row] for row in rows])
            for row, vector, shares in zip(rows, vectors, attention, strict=True):
                check()
                fields = field_words(documents[row], own.schema, own.pieces)
                explanations[row] = self._explanation(sequences[row], fields, shares, vector)
        return [explanations[row] for row in range(len(documents))]

    def leave_one_out(self, text: str, vectors: NDArray[np.float32]) -> list[TermAblation]:
        """Leaves each different word out of the query, wherever it stands, and encodes and scores what is left.

        The rest is the list of the query's words without that word, preprocessed as if it had been the query: the other
        words' weights change with the query's length, and words that the budget had cut off may come in.

        Args:
            text: the query.
            vectors: float32 [n, D], L2-normalised, of the hits (`Explanation.vector`).

        Returns:
            One for each different word that reached the tower, in order; none for a query of one different word, of
            which nothing would be left.

        Raises:
            ArtifactError: if a graph cannot be opened.
        """
        words = self._preprocessor.pieces.words(text)
        tokens = self._preprocessor.query_words(words)
        kept = tuple(dict.fromkeys(tokens.words))
        if len(set(words)) < 2:
            return []
        rests = [self._preprocessor.query_words([word for word in words if word != left]) for left in kept]
        encoded = self._tower(QUERY_TOWER).tower.encode([tokens, *rests])
        scores = encoded @ vectors.T  # [1 + w, n]
        deltas = scores[1:] - scores[0]
        return [TermAblation(word, tuple(row)) for word, row in zip(kept, deltas.tolist(), strict=True)]

    def _tower(self, name: str) -> AttentionEncoder:
        if name not in self._towers:
            with self._lock:
                if name not in self._towers:
                    path, pad_id = self._folder / EXPLAIN_TOWERS[name], self._preprocessor.pieces.pad_id
                    self._towers[name] = AttentionEncoder(path, pad_id, self._device, self._threads)
        return self._towers[name]

    def _explanation(
        self,
        tokens: WeightedTokens,
        fields: Mapping[str, Sequence[str]],
        attention: NDArray[np.float32],
        vector: NDArray[np.float32],
    ) -> Explanation:
        """Gathers tokens into words; `attention` is float32 [L] and may be padded."""
        names, idf = tuple(fields), self._preprocessor.weigher.idf
        counts = {name: Counter(words) for name, words in fields.items()}
        weights: dict[tuple[str, str], float] = {}
        shares: dict[tuple[str, str], float] = {}
        specials = 0.0
        # Each field ends with a [SEP], whatever its field id is.
        places = (tokens.word_ids < 0).cumsum() - 1
        columns = (tokens.word_ids, places, tokens.weights, attention[: len(tokens)])
        for number, place, weight, share in zip(*(column.tolist() for column in columns), strict=True):
            if number < 0:
                specials += share
                continue
            key = names[place], tokens.words[number]
            weights[key] = weight
            shares[key] = shares.get(key, 0.0) + share
        terms = [
            ExplainedWord(field, word, counts[field][word], idf(word), weights[field, word], share)
            for (field, word), share in shares.items()
        ]
        return Explanation(tuple(sorted(terms, key=lambda term: -term.attention)), specials, vector)
