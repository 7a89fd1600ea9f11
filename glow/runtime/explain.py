"""Explains the vector of a text: its words, their weights, and the attention that they got.

The figures come from the towers themselves: weights are their input, attention is their second output. The towers with
that output are opened on the first request, so a service without such requests pays nothing.

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
from glow.runtime.encoder import VECTOR, Device, Encoder
from glow.text import QUERY, Preprocessor, WeightedTokens, batches_by_length, field_words, is_punctuation

ATTENTION = "attention"
MAX_BATCH_TOKENS = 512
"""A batch that stays in a core's cache, as in a build."""
ABLATED_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """A word in one field of a text, as the tower read it."""

    field: str  # of the schema, or `query`
    word: str  # as preprocessing yields it
    tf: int  # how often the field has it, before truncation; the weight is computed from it
    idf: float  # from the index's term statistics; finite, >= 0
    weight: float  # the tower's input for each of the word's subword tokens; the same in every field of a document
    # Fraction in [0, 1] of [CLS]'s attention in the last layer that its subword tokens in this field get, mean over heads
    attention: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Explanation of one query or document."""

    terms: tuple[ExplainedWord, ...]  # once per field: most attended first, ties as in the text
    specials: float  # attention on [CLS] and [SEP]; with that of all terms it adds up to 1
    vector: NDArray[np.float32]  # float32 [D], L2-normalized, bit for bit that of the tower without attention

    def attended_words(self, count: int = 5) -> tuple[str, ...]:
        """The words with most attention, summed over fields and without punctuation; at most `count`."""
        sums: dict[str, float] = {}
        for term in self.terms:
            if not is_punctuation(term.word):
                sums[term.word] = sums.get(term.word, 0.0) + term.attention
        return tuple(sorted(sums, key=lambda word: -sums[word])[:count])


@dataclass(frozen=True, slots=True)
class TermAblation:
    """Change of each hit's cosine when one query term is removed: `deltas[i]`, negative if it falls."""

    word: str
    deltas: tuple[float, ...]


class AttentionEncoder:
    """A tower with attention as an output; arguments as `Encoder`, for an explain graph."""

    def __init__(self, path: Path, pad_id: int = 0, device: Device = "cpu", threads: int = 1) -> None:
        self.tower = Encoder(path, pad_id, device, threads, MAX_BATCH_TOKENS)
        if ATTENTION not in self.tower.outputs:
            raise FormatError(
                f"{path.name} has outputs {self.tower.outputs}, expected {ATTENTION!r} among them; export the model "
                "again (glow export-model)"
            )

    def run(self, sequences: Sequence[WeightedTokens]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors float32 [n, D] and attention of [CLS] float32 [n, L] of one padded batch; 0 on padding."""
        vectors, attention = self.tower.run_outputs(sequences, [VECTOR, ATTENTION])
        return vectors, attention


class Explainer:
    """Explains queries and documents of one index version; safe to use from many threads."""

    def __init__(
        self,
        folder: Path,  # of the explain graphs with their weights (`glow.artifact.model.EXPLAIN_FILES`)
        preprocessor: Preprocessor,  # of the index, whose term statistics give the towers' weights
        device: Device = "cpu",
        threads: int = 1,
    ) -> None:
        self._folder, self._preprocessor = folder, preprocessor
        self._device, self._threads = device, threads
        self._lock = threading.Lock()
        self._towers: dict[str, AttentionEncoder] = {}

    @property
    def is_open(self) -> bool:
        """Whether both towers are open, which the first request causes: the directory is not read after that."""
        return len(self._towers) == len(EXPLAIN_TOWERS)

    def explain_query(self, text: str) -> Explanation:
        """Explains a query; one without words has no terms."""
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

        `check` is called before every document and batch; what it raises ends the work.
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
        """Removes each different word from the query, at all its places, and scores hits float32 [n, D] by the rest.

        The rest is preprocessed like a query of its own: the other words' weights change with the query's length, and
        words that the token limit had cut off may come in. Of a long query only the heaviest words are removed, so that the rests
        are at most 4,096 tokens together. A query of one word has none.
        """
        words = self._preprocessor.pieces.words(text)
        tokens = self._preprocessor.query_words(words)
        if len(set(words)) < 2:
            return []
        read = dict.fromkeys(tokens.words)
        heaviest = sorted(read, key=self._preprocessor.weigher.idf, reverse=True)
        heavy = set(heaviest[: ABLATED_TOKENS // len(tokens)])
        removed = [word for word in read if word in heavy]
        rests = [self._preprocessor.query_words([word for word in words if word != left]) for left in removed]
        encoded = self._tower(QUERY_TOWER).tower.encode([tokens, *rests])
        scores = encoded @ vectors.T  # [1 + w, n]
        deltas = scores[1:] - scores[0]
        return [TermAblation(word, tuple(row)) for word, row in zip(removed, deltas.tolist(), strict=True)]

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
        # Each field ends with a [SEP], for any field id.
        places = (tokens.word_ids < 0).cumsum() - 1
        columns = (tokens.word_ids, places, tokens.weights, attention[: len(tokens)])
        for number, place, weight, share in zip(*(column.tolist() for column in columns), strict=True):
            if number < 0:
                specials += share
                continue
            word = tokens.words[number]
            # Fields that are one text have one [SEP]: then a word belongs to the first field that has it.
            key = next((name for name in names[place:] if counts[name][word]), names[place]), word
            weights[key] = weight
            shares[key] = shares.get(key, 0.0) + share
        terms = [
            ExplainedWord(field, word, counts[field][word], idf(word), weights[field, word], share)
            for (field, word), share in shares.items()
        ]
        return Explanation(tuple(sorted(terms, key=lambda term: -term.attention)), specials, vector)
