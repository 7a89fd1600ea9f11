"""Encodes documents as learned impacts, in the same pass of the document tower as their vectors.

b   texts of a batch        L   tokens
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import LEARNED_HEAD, learned_hash
from glow.errors import ConfigError
from glow.index.encoding import Records, Texts
from glow.index.learned_sparse.impacts import LearnedWords, WordScorer
from glow.index.learned_sparse.words import WordSide, choose_words
from glow.index.numpy_threads import set_numpy_threads
from glow.records import Document
from glow.runtime import TERMS, Device, LearnedHead, Model
from glow.text import TermTable, is_lexical, lexical_tokens

__all__ = ["LearnedEncoder", "LearnedJob", "make_word_side", "require_learned", "words_of"]

CLICKED_QUERIES = "clicked_queries"
"""Field of the queries whose users clicked the document, if the schema has it."""
RECORD = np.dtype([("word", "<u4"), ("cause", "u1"), ("code", "u1")])


def require_learned(model: Model) -> str:
    """The hash of a model's head for learned impacts.

    Raises:
        ConfigError: if the model has none.
    """
    digest = learned_hash(model.manifest.files)
    if digest is None:
        raise ConfigError(
            f"--learned-sparse: model {model.label} makes no learned impacts; train a head (glow train --config configs/learned.toml) "
            "and add it (glow export-model --add-learned)"
        )
    return digest


def make_word_side(
    model: Model, documents: Iterable[Document], corpus: TermTable, terms: TermTable, limit: int, threads: int
) -> WordSide:
    """The vocabulary of an index's learned impacts, with the outputs of the model's head.

    Args:
        model: with a head.
        documents: of the index; their clicked queries show which words are searched.
        corpus: their word statistics.
        terms: the index's term statistics.
        limit: maximum number of words.
        threads: number of encoding threads.
    """
    head = LearnedHead.load(model.folder / LEARNED_HEAD)
    encoder = model.encoder("query", "cpu", threads)
    pieces = model.preprocessor.pieces
    asked = Counter(
        word
        for document in documents
        for query in document.fields.get(CLICKED_QUERIES, ())
        for word in pieces.words(query)
        if is_lexical(word)
    )
    return WordSide.make(choose_words(corpus, head, limit, asked), head, model.with_terms(terms), encoder)


@dataclass(frozen=True, slots=True)
class LearnedJob:
    """Makes learned impacts.

    Attributes:
        words: directory of the vocabulary.
        budget: most words of a document.
        unit: the index's impact of code 1; None: derived from the vocabulary.
    """

    words: Path
    budget: int
    unit: float | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """As `EncodeJob`: a word's number, its cause and its code."""
        return RECORD

    def open(self, model: Model, terms: TermTable, device: Device) -> "LearnedEncoder":
        """Opens the encoder, for a model with a head.

        Raises:
            ArtifactError: if a file is missing or damaged.
        """
        set_numpy_threads(1)
        head = LearnedHead.load(model.folder / LEARNED_HEAD)
        return LearnedEncoder(WordScorer(WordSide.load(self.words), head.cut, self.budget, self.unit))


class LearnedEncoder:
    """Converts directions of tokens to learned words; safe to use from many threads.

    Args:
        scorer: scores words.
    """

    reads: tuple[str, ...] = (TERMS,)

    def __init__(self, scorer: WordScorer) -> None:
        self._scorer = scorer

    def encode(self, batch: Texts) -> Records:
        """The most important words of each text.

        Raises:
            ValueError: if a direction is not finite, because the head is broken.
        """
        directions = batch.outputs[TERMS]
        found = [np.empty(0, RECORD)]
        for place, sequence in enumerate(batch.sequences):
            spoken = lexical_tokens(sequence)
            tokens = directions[place, spoken]
            if not np.isfinite(tokens).all():
                raise ValueError(f"the directions of document {batch.texts[place].id!r} are not finite")
            kept = self._scorer.score(tokens, sequence.word_ids[spoken])
            records = np.empty(len(kept.words), RECORD)
            records["word"], records["cause"], records["code"] = kept.words, kept.causes, kept.codes
            found.append(records)
        counts = np.fromiter(map(len, found[1:]), np.int64, len(found) - 1)
        return Records(np.concatenate(found), counts)


def words_of(blocks: Iterable[Records]) -> Iterator[LearnedWords]:
    """The learned words of each text, from records of `LearnedEncoder`."""
    for records, counts in blocks:
        ends = np.cumsum(counts).tolist()
        for stop, count in zip(ends, counts.tolist(), strict=True):
            held = records[stop - count : stop]
            yield LearnedWords(held["word"], held["code"], held["cause"])
