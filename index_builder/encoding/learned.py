"""Learned impacts of documents, made in the same pass of the document tower as their vectors."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from glow.artifact import LEARNED_HEAD, TERMS_TOWER, learned_hash
from glow.errors import ConfigError
from glow.index.learned_sparse import LearnedWords, WordScorer, WordSide, choose_words
from glow.records import Document
from glow.runtime import Device, LearnedHead, Model, TermsEncoder
from glow.text import TermTable, WeightedTokens, batches_by_length, is_lexical, lexical_tokens

__all__ = ["LearnedEncoder", "LearnedJob", "make_word_side", "require_learned"]

CLICKED_QUERIES = "clicked_queries"
"""Field of the queries by which people came to a document, where the schema has it."""


@dataclass(frozen=True, slots=True)
class LearnedJob:
    """What makes learned impacts.

    Attributes:
        words: folder of the words.
        budget: words of a document.
        unit: impact of code 1, as the index has it already; None: what suits the words.
    """

    words: Path
    budget: int
    unit: float | None = None


def require_learned(model: Model) -> str:
    """The hash of what a model makes learned impacts with.

    Raises:
        ConfigError: if it has nothing of the kind.
    """
    digest = learned_hash(model.manifest.files)
    if digest is None:
        raise ConfigError(
            f"--learned: model {model.label} makes no learned impacts; train a head (glow train --config configs/learned.toml) "
            "and add it (glow export-model --add-learned)"
        )
    return digest


def make_word_side(
    model: Model, documents: Iterable[Document], corpus: TermTable, terms: TermTable, limit: int, threads: int
) -> WordSide:
    """The words that an index' learned impacts are made for, with what the model's head makes of them.

    Args:
        model: with a head.
        documents: of the index, whose clicked queries tell which words are asked for.
        corpus: the table of their own words.
        terms: the index's table.
        limit: most words.
        threads: of encoding them.
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


class LearnedEncoder:
    """Documents to vectors and learned impacts; safe to use from many threads.

    Args:
        encoder: the document tower that also gives directions, whose own threads are one.
        scorer, words: scores words, and which they are.
    """

    def __init__(self, encoder: TermsEncoder, scorer: WordScorer, words: Sequence[str]) -> None:
        self._encoder, self.scorer, self.words = encoder, scorer, words

    @classmethod
    def open(cls, model: Model, job: LearnedJob, device: Device, batch_tokens: int) -> Self:
        """Opens what a job names, by a model that has a head.

        Raises:
            ArtifactError: if it is gone or damaged.
            DeviceError: if the device is not there.
        """
        _use_one_thread()
        head = LearnedHead.load(model.folder / LEARNED_HEAD)
        pad_id = model.preprocessor.pieces.pad_id
        encoder = TermsEncoder(model.folder / TERMS_TOWER, pad_id, device, 1, batch_tokens)
        side = WordSide.load(job.words)
        return cls(encoder, WordScorer(side, head.cut, job.budget, job.unit), side.words)

    def encode(
        self, sequences: Sequence[WeightedTokens], documents: Sequence[Document]
    ) -> tuple[NDArray[np.float32], list[LearnedWords]]:
        """Vectors float32 [n, D] and learned words of documents or passages, in the order given.

        Raises:
            ValueError: if a direction is not finite, so that the head is broken.
        """
        vectors = np.empty((len(sequences), self._encoder.dimensions), np.float32)
        words: dict[int, LearnedWords] = {}
        for rows in batches_by_length([len(each) for each in sequences], self._encoder.batch_tokens):
            vectors[rows], terms = self._encoder.run_terms([sequences[row] for row in rows])
            for place, row in enumerate(rows):
                spoken = lexical_tokens(sequences[row])
                tokens = terms[place, spoken]
                if not np.isfinite(tokens).all():
                    raise ValueError(f"the directions of document {documents[row].id!r} are not finite")
                words[row] = self.scorer.score(tokens, sequences[row].word_ids[spoken])
        return vectors, [words[row] for row in range(len(sequences))]


def _use_one_thread() -> None:
    """NumPy's products on one thread each: as many documents as there are threads are scored at the same time.

    Of NumPy alone, whose library of these is not the one that FAISS brings.
    """
    ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1)
