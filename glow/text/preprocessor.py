"""Text to tower input: turns queries and documents into ids and weights.

Training, export, builder, evaluation and service all use `Preprocessor`; its version is part of the model
hash. A query is `[CLS] words [SEP]`, a document `[CLS] field [SEP] field [SEP] …` with fields in the schema's order.

    L   tokens of one sequence; a batch pads to its longest
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError
from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text.analyzer import is_lexical
from glow.text.terms import TermTable
from glow.text.tokenizer import TOKENIZER_FILE, TokenizerPieces
from glow.text.weighting import Weighting, WordWeigher, WordWeights, normalise, soften
from glow.text.words import VOCABULARY_FILE, Unit, WordPieces, url_words

PREPROCESSOR_VERSION = 1
"""Version of the preprocessing: increased with every change of ids or weights for the same text and options."""
SPECIAL = -1
CACHED_WORDS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTokens:
    """One preprocessed query or document."""

    ids: NDArray[np.int64]  # int64 [L], of subword tokens
    field_ids: NDArray[np.int64]  # int64 [L], position of the token's field in the schema; 0 for queries
    word_ids: NDArray[np.int64]  # int64 [L], index into `words`; -1 for [CLS] and [SEP]
    weights: NDArray[np.float32]  # float32 [L], finite, >= 0; normalized if the model requires it
    words: tuple[str, ...]  # those that have at least one token here, in order
    dropped_words: Mapping[str, int]  # field -> number of its words that the token limit cut, at least partly

    def __len__(self) -> int:
        return len(self.ids)

    def without_first(self) -> "WeightedTokens":
        """Without [CLS]: a document after a query, which has the only one."""
        names = ("ids", "field_ids", "word_ids", "weights")
        return replace(self, **{name: getattr(self, name)[1:] for name in names})

    @property
    def truncated(self) -> bool:
        """Whether a token limit cut any word."""
        return bool(self.dropped_words)


class _Layout:
    """Tokens of one sequence while it is being laid out; its prefix has no weight."""

    def __init__(self, pieces: WordPieces, prefix: Sequence[int]) -> None:
        self.pieces = pieces
        self.ids = [pieces.cls_id, *prefix]
        self.field_ids = [0] * len(self.ids)
        self.word_ids = [SPECIAL] * len(self.ids)
        self.words: list[str] = []
        self.dropped_words: dict[str, int] = {}

    def add(self, name: str, field_id: int, words: Sequence[str], limit: int, *, ends: bool = True) -> None:
        """Adds a field's words up to `limit` tokens in all, then [SEP] if `ends`; a word may be cut inside."""
        complete = 0
        for word in words:
            if len(self.ids) >= limit:
                break
            pieces = self.pieces.pieces(word)
            self.ids += pieces
            self.word_ids += [len(self.words)] * len(pieces)
            self.words.append(str(word))
            complete += 1
        if len(self.ids) > limit:  # the last word does not fit completely
            del self.ids[limit:], self.word_ids[limit:]
            complete -= 1
        if complete < len(words):
            self.dropped_words[name] = len(words) - complete
        if ends:
            self.ids.append(self.pieces.sep_id)
            self.word_ids.append(SPECIAL)
        self.field_ids.extend([field_id] * (len(self.ids) - len(self.field_ids)))

    def finish(self, weights: WordWeights, weighting: Weighting) -> WeightedTokens:
        """Spreads each word's weight over its tokens (GLOW section 3.6)."""
        ids = np.array(self.ids, np.int64)
        word_ids = np.array(self.word_ids, np.int64)
        by_word = np.array([*(weights.words[word] for word in self.words), weights.sep], np.float32)
        token_weights = by_word[word_ids]  # SPECIAL is -1: the last entry, [SEP]
        token_weights[0] = weights.cls
        return WeightedTokens(
            ids,
            np.array(self.field_ids, np.int64),
            word_ids,
            soften(normalise(token_weights, weighting.normalise), weighting.strength),
            tuple(self.words),
            self.dropped_words,
        )


class Preprocessor:
    """Turns queries and documents into weighted tokens; a `ConfigError` if a prefix leaves no tokens for a text."""

    def __init__(
        self,
        pieces: WordPieces,
        schema: FieldSchema,
        weighting: Weighting,
        terms: TermTable,  # queries and documents of one index use the same
        *,
        # A query's unknown word weighs at most as much as the heaviest known one: a typo has the highest idf
        caps_unknown: bool = False,
    ) -> None:
        # A cached method would keep the mapped statistics in a reference cycle, which only the collector frees.
        self._is_known = lru_cache(maxsize=CACHED_WORDS)(partial(_holds, terms)) if caps_unknown else None
        self.pieces = pieces
        self.schema = schema
        self.weighting = weighting
        self.terms = terms
        self.weigher = WordWeigher(weighting, schema, terms)
        self._query_prefix = _prefix(pieces, schema.query_prefix, schema.query_tokens)
        self._document_prefix = _prefix(pieces, schema.document_prefix, schema.document_tokens)

    def query(self, text: str) -> WeightedTokens:
        """Preprocesses a query: [CLS] words [SEP], at most `schema.query_tokens`; accepts any string."""
        return self.query_words(self.pieces.words(text))

    def query_words(self, words: Sequence[str]) -> WeightedTokens:
        """Preprocesses a query that is already split into words, as by `WordPieces.words`."""
        layout = _Layout(self.pieces, self._query_prefix)
        layout.add("query", 0, words, self.schema.query_tokens - 1)
        tokens = layout.finish(self.weigher.query(words, layout.words), self.weighting)
        known = True if self._is_known is None else all(map(self._is_known, tokens.words))
        return tokens if known else self._capped(tokens)

    def _capped(self, tokens: WeightedTokens) -> WeightedTokens:
        is_known = np.array([*(self.terms.df(word) > 0 for word in tokens.words), True], np.bool_)
        known = is_known[tokens.word_ids]  # [CLS] and [SEP] are -1: the last entry
        words = tokens.word_ids >= 0
        if not (known & words).any():
            return tokens
        cap = tokens.weights[known & words].max()
        return replace(tokens, weights=np.where(known, tokens.weights, np.minimum(tokens.weights, cap)))

    def document(self, document: Document) -> WeightedTokens:
        """Preprocesses a document; a missing field is empty and still has its [SEP]."""
        fields = field_words(document, self.schema, self.pieces)
        layout = self._lay_out(fields, len(self.schema.fields))
        return layout.finish(self.weigher.document(fields, layout.words), self.weighting)

    def room(self, document: Document, field: str) -> int:
        """The number of tokens that a field of the schema may take in a document, after the fields before it; >= 0."""
        words: dict[str, list[str]] = {}
        for spec in self.schema.fields:
            if spec.name == field:
                break
            words[spec.name] = _words(document, spec, self.pieces)
        layout = self._lay_out(words, len(words))
        return max(self._limit(layout, len(words)) - len(layout.ids), 0)

    def _lay_out(self, fields: Mapping[str, Sequence[str]], count: int) -> _Layout:
        """Layout of the first `count` fields of the schema."""
        layout = _Layout(self.pieces, self._document_prefix)
        last = len(self.schema.fields) - 1
        for field_id, spec in enumerate(self.schema.fields[:count]):
            seen_id = 0 if self.schema.one_field_id else field_id
            ends = not self.schema.joined or field_id == last
            layout.add(spec.name, seen_id, fields[spec.name], self._limit(layout, field_id), ends=ends)
        return layout

    def _limit(self, layout: _Layout, field_id: int) -> int:
        """Total number of tokens after the next field's last word."""
        # Each later field needs space for its [SEP].
        later = 0 if self.schema.joined else len(self.schema.fields) - field_id - 1
        start = len(self._document_prefix) if field_id == 0 else len(layout.ids)
        return min(start + self.schema.fields[field_id].tokens, self.schema.document_tokens - later) - 1


def _prefix(pieces: WordPieces, text: str, tokens: int) -> list[int]:
    ids = [number for word in pieces.words(text) for number in pieces.pieces(word)]
    if ids and len(ids) + 3 > tokens:  # [CLS], a token of the text itself, [SEP]
        raise ConfigError(
            f"a prefix of {len(ids)} subword tokens leaves none of {tokens} tokens for a text: {text!r:.80}; "
            "give a shorter one"
        )
    return ids


def _holds(terms: TermTable, word: str) -> bool:
    return terms.df(word) > 0


def field_words(document: Document, schema: FieldSchema, pieces: WordPieces) -> dict[str, list[str]]:
    """Every word of every field of the schema, before truncation: input of term statistics."""
    return {spec.name: _words(document, spec, pieces) for spec in schema.fields}


def _words(document: Document, spec: FieldSpec, pieces: WordPieces) -> list[str]:
    values = [value for value in document.fields.get(spec.name, ()) if value.strip()][: spec.max_values]
    if spec.kind == "url":
        values = [url_words(value, keep_digits=spec.keep_digits) for value in values]
    return [word for value in values for word in pieces.words(value)]


def load_pieces(folder: Path, unit: Unit = "word") -> WordPieces:
    """The subword vocabulary of a model or checkpoint directory; a tokenizer's tokens cannot be the unit of weights."""
    if not (folder / TOKENIZER_FILE).is_file():
        return WordPieces(folder / VOCABULARY_FILE, unit)
    if unit != "word":
        raise ConfigError(
            f"subword tokens of {TOKENIZER_FILE} cannot be the unit of weights; expected the unit word"
        )
    return TokenizerPieces(folder / VOCABULARY_FILE)


def load_preprocessor(
    folder: Path,
    terms: TermTable | None = None,  # to use instead of the directory's own
    pieces: WordPieces | None = None,  # of the same vocabulary and weighting; loading them again takes time
    *,
    caps_unknown: bool = False,
) -> Preprocessor:
    """The preprocessor of a model or checkpoint directory, as `save_preprocessor` wrote it."""
    weighting = Weighting.load(folder / "weighting.json")
    return Preprocessor(
        pieces if pieces is not None else load_pieces(folder, weighting.unit),
        FieldSchema.load(folder / "schema.json"),
        weighting,
        terms if terms is not None else TermTable.load(folder / "terms"),
        caps_unknown=caps_unknown,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tower input; sequences are padded at the end."""

    ids: NDArray[np.int64]  # int64 [B, L]
    mask: NDArray[np.int64]  # int64 [B, L], 1 for tokens and 0 for padding
    field_ids: NDArray[np.int64]  # int64 [B, L]
    weights: NDArray[np.float32]  # float32 [B, L], 1 on padding (docs/papers.md, row 3), which the mask hides


def pad(sequences: Sequence[WeightedTokens], pad_id: int, length: int = 0) -> Batch:
    """Pads sequences at the end to the longest of them, or to `length` if it is greater; needs at least one."""
    shape = (len(sequences), max(max(len(sequence) for sequence in sequences), length))
    ids = np.full(shape, pad_id, np.int64)
    mask, field_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    weights = np.ones(shape, np.float32)
    for row, sequence in enumerate(sequences):
        length = len(sequence)
        ids[row, :length] = sequence.ids
        mask[row, :length] = 1
        field_ids[row, :length] = sequence.field_ids
        weights[row, :length] = sequence.weights
    return Batch(ids, mask, field_ids, weights)


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Groups positions into batches of similar length, longest first, with at most `max_tokens` including padding.

    A longer sequence is alone. So one long text neither pads the others nor needs much memory.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def lexical_tokens(sequence: WeightedTokens) -> NDArray[np.int64]:
    """Positions of the tokens whose words a lexical index holds, int64, ascending."""
    holds = np.array([*(is_lexical(word) for word in sequence.words), False])  # special tokens have index -1
    return np.flatnonzero(holds[sequence.word_ids])


def save_preprocessor(folder: Path, preprocessor: Preprocessor) -> None:
    """Writes vocabulary, schema, weighting and term statistics for `load_preprocessor`."""
    vocabulary = preprocessor.pieces.vocabulary
    shutil.copyfile(vocabulary, folder / VOCABULARY_FILE)
    if isinstance(preprocessor.pieces, TokenizerPieces):
        shutil.copyfile(vocabulary.with_name(TOKENIZER_FILE), folder / TOKENIZER_FILE)
    preprocessor.schema.save(folder / "schema.json")
    preprocessor.weighting.save(folder / "weighting.json")
    preprocessor.terms.save(folder / "terms")
