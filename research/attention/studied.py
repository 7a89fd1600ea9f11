"""What a case study looks at: models and checkpoints in torch, texts of a data folder, and the corpus' own idf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from glow.artifact import QUERY_TOWER
from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import ArtifactNotFoundError, ConfigError, InputError
from glow.nn import Pooling, TwoTowers
from glow.records import Document, Query
from glow.runtime import Model
from glow.text import Preprocessor, TermCounter, TermTable, Weighting, WordPieces, field_words, select_terms
from glow.training import TOWERS_FILE, load_checkpoint, read_towers

__all__ = ["Choice", "CorpusTerms", "Side", "StudiedModel", "open_studied", "read_texts"]

Side = Literal["document", "query"]
Text = TypeVar("Text", Document, Query)


@dataclass(frozen=True, slots=True, eq=False)
class StudiedModel:
    """A model or checkpoint as torch towers in evaluation mode, with the preprocessor that it has by itself."""

    name: str
    towers: TwoTowers
    preprocessor: Preprocessor

    @property
    def pooling(self) -> Pooling:
        """How its towers make a vector of the last layer."""
        return self.towers.config.pooling


def open_studied(folders: Sequence[Path]) -> list[StudiedModel]:
    """Opens models and checkpoints; a name that two share gives way to the folders as given.

    Raises:
        ArtifactNotFoundError: if a folder is neither.
        ArtifactError: if it is damaged.
        ConfigError: if a folder is given twice.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("--model names the same folder twice: give each model once")
    opened = [_open(folder) for folder in folders]
    names = [model.name for model in opened]
    return [
        model if names.count(model.name) == 1 else StudiedModel(str(folder), model.towers, model.preprocessor)
        for model, folder in zip(opened, folders, strict=True)
    ]


def _open(folder: Path) -> StudiedModel:
    if (folder / QUERY_TOWER).is_file():
        model = Model.open(folder)
        return StudiedModel(model.manifest.name, read_towers(model), model.preprocessor)
    if not (folder / TOWERS_FILE).is_file():
        raise ArtifactNotFoundError(
            f"{folder} is neither a model (it lacks {QUERY_TOWER}) nor a checkpoint (it lacks {TOWERS_FILE})"
        )
    checkpoint = load_checkpoint(folder)
    return StudiedModel(checkpoint.manifest.name, checkpoint.towers, checkpoint.preprocessor)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which texts of a folder.

    Attributes:
        side: documents or queries.
        split: the texts to draw from: its judged queries, or the documents judged relevant (grade >= 1) there.
        ids: the texts themselves, in this order; then nothing is drawn and the split is not read.
        count: most texts to draw, >= 1; they come in the order of the judgements.
        seed: of the draw.
    """

    side: Side = "document"
    split: str = "dev"
    ids: tuple[str, ...] = ()
    count: int = 5
    seed: int = 0


def read_texts(
    folder: Path, fields: Sequence[str], choice: Choice
) -> tuple[list[Document], list[Document] | list[Query]]:
    """Reads the corpus of a data folder, and the chosen texts.

    Args:
        folder: in BEIR's layout.
        fields: names of the text fields.
        choice: which texts.

    Raises:
        InputError: if a file is missing or bad, an id is not there, or the split judges nothing that is.
    """
    corpus = list(read_documents(folder / "corpus.jsonl", fields))
    if choice.side == "document":
        return corpus, _chosen({document.id: document for document in corpus}, folder, choice)
    return corpus, _chosen(
        {query.id: query for query in read_queries(folder / "queries.jsonl")}, folder, choice
    )


def _chosen(known: Mapping[str, Text], folder: Path, choice: Choice) -> list[Text]:
    if choice.ids:
        unknown = [identifier for identifier in choice.ids if identifier not in known]
        if unknown:
            raise InputError(f"{folder} holds no {choice.side} {', '.join(map(repr, unknown))}")
        return [known[identifier] for identifier in dict.fromkeys(choice.ids)]
    qrels = [qrel for qrel in read_qrels(folder / "qrels" / f"{choice.split}.tsv") if qrel.grade >= 1]
    judged = [qrel.document_id if choice.side == "document" else qrel.query_id for qrel in qrels]
    there = [identifier for identifier in dict.fromkeys(judged) if identifier in known]
    if not there:
        raise InputError(f"split {choice.split!r} of {folder} judges no {choice.side} that is there")
    drawn = np.random.default_rng(choice.seed).permutation(len(there))[: choice.count]
    return [known[there[row]] for row in sorted(drawn.tolist())]


class CorpusTerms:
    """Preprocessors with the term table of a corpus, counted once for all models that see the same words in it."""

    def __init__(self, corpus: Sequence[Document]) -> None:
        self._corpus = corpus
        self._counted: dict[tuple[str, Path | None], TermTable] = {}

    def on(self, own: Preprocessor, weighting: Weighting) -> Preprocessor:
        """A model's preprocessor with this weighting, and the terms that an index of the corpus has by default."""
        pieces = WordPieces(own.pieces.vocabulary, weighting.unit)
        key = (own.schema.hash, own.pieces.vocabulary if weighting.unit == "piece" else None)
        if key not in self._counted:
            counter = TermCounter()
            for document in self._corpus:
                counter.add(field_words(document, own.schema, pieces))
            self._counted[key] = counter.table()
        terms = select_terms("corpus", self._counted[key], own.terms)
        return Preprocessor(pieces, own.schema, weighting, terms)
