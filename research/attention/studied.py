"""Inputs of a case study: models and checkpoints in torch, documents of a data directory, and the corpus's idf."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from glow.artifact import QUERY_TOWER
from glow.collection import read_documents, read_qrels
from glow.errors import ConfigError, InputError
from glow.nn import TwoTowers
from glow.records import Document
from glow.runtime import Model
from glow.text import Preprocessor, TermCounter, TermTable, Weighting, WordPieces, field_words, select_terms
from glow.training import load_checkpoint, read_towers

__all__ = ["CorpusTerms", "StudiedModel", "open_studied", "read_texts"]


@dataclass(frozen=True, slots=True, eq=False)
class StudiedModel:
    """A model or checkpoint as torch towers in evaluation mode, with its own preprocessor."""

    name: str
    towers: TwoTowers
    preprocessor: Preprocessor


def open_studied(folders: Sequence[Path]) -> list[StudiedModel]:
    """Opens models and checkpoints; if two share a name, the given directories become their names.

    Raises:
        ArtifactError: if a directory is neither, or damaged.
        ConfigError: if a directory is given twice.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("--model names the same folder twice: give each model once")
    opened = [_open(folder) for folder in folders]
    names = [model.name for model in opened]
    return [
        model if names.count(model.name) == 1 else replace(model, name=str(folder))
        for model, folder in zip(opened, folders, strict=True)
    ]


def _open(folder: Path) -> StudiedModel:
    if (folder / QUERY_TOWER).is_file():
        model = Model.open(folder)
        return StudiedModel(model.manifest.name, read_towers(model), model.preprocessor)
    checkpoint = load_checkpoint(folder)
    return StudiedModel(checkpoint.manifest.name, checkpoint.towers, checkpoint.preprocessor)


def read_texts(
    folder: Path, fields: Sequence[str], split: str, count: int
) -> tuple[list[Document], list[Document]]:
    """Reads the corpus of a data directory, and samples documents that a split judges relevant (grade >= 1).

    Args:
        folder: in BEIR's layout.
        fields: names of the text fields.
        split: split of the relevance judgments.
        count: most documents to draw, >= 1; they keep the order of the judgments.

    Raises:
        InputError: if a file is missing or invalid, or the split judges none of the documents.
    """
    corpus = list(read_documents(folder / "corpus.jsonl", fields))
    known = {document.id: document for document in corpus}
    judged = [each.document_id for each in read_qrels(folder / "qrels" / f"{split}.tsv") if each.grade >= 1]
    there = [identifier for identifier in dict.fromkeys(judged) if identifier in known]
    if not there:
        raise InputError(f"split {split!r} of {folder} judges none of its documents")
    drawn = np.random.default_rng(0).permutation(len(there))[:count]
    return corpus, [known[there[row]] for row in sorted(drawn.tolist())]


class CorpusTerms:
    """Preprocessors with a corpus's term statistics, computed once for all models that split it into the same words."""

    def __init__(self, corpus: Sequence[Document]) -> None:
        self._corpus = corpus
        self._counted: dict[tuple[str, Path | None], TermTable] = {}

    def on(self, own: Preprocessor, weighting: Weighting) -> Preprocessor:
        """A model's preprocessor with this weighting and the default term statistics of an index of the corpus."""
        pieces = WordPieces(own.pieces.vocabulary, weighting.unit)
        key = (own.schema.hash, own.pieces.vocabulary if weighting.unit == "piece" else None)
        if key not in self._counted:
            counter = TermCounter()
            for document in self._corpus:
                counter.add(field_words(document, own.schema, pieces))
            self._counted[key] = counter.table()
        terms = select_terms("corpus", self._counted[key], own.terms)
        return Preprocessor(pieces, own.schema, weighting, terms)
