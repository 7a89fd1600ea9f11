"""Encodes documents or passages to vectors and component records in one pass of the document tower.

Documents whose fields did not change take their vectors from the live version.

n   texts       D   dimensions
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, TERMS_TOWER
from glow.errors import GlowError
from glow.index import COMPONENTS, EncodeJob, Records, RowEncoder, Rules, Segment, Texts
from glow.index.milvus import STORE_FILE
from glow.index.passages import TextsOfDocuments
from glow.index.vectors import VECTORS
from glow.records import Document
from glow.runtime import DEFAULT_BATCH_TOKENS, TERMS, VECTOR, Device, Encoder, Model, preprocess_documents
from glow.text import Preprocessor, TermTable, WeightedTokens, batches_by_length
from glow_index_builder.open_version import OpenVersion

CPU_BATCH_TOKENS = 512
"""Small batches fit a core's cache: 16 ms of CPU per document, against 20 at 4,096 tokens (3 layers, 155 tokens)."""


class EncodedTexts(NamedTuple):
    """Encoded documents or passages."""

    truncated: Mapping[str, int]  # field -> number of texts whose field was truncated
    vectors: NDArray[np.float32]  # float32 [m, D]
    records: Mapping[str, Records] = {}  # name of a component -> its records of the same m texts
    reused: int = 0  # number of documents whose vectors the live version gave


class EncodeError(GlowError):
    """A document cannot be encoded; a build rejects it and continues."""

    def __init__(self, message: str, component: str = "") -> None:
        super().__init__(message)
        self.component = component


class TextEncoder:
    """Makes vectors and records from texts; thread-safe."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        tower: Encoder,
        encoders: Mapping[str, RowEncoder] | None = None,  # name of a component -> the encoder of its records
    ) -> None:
        self._preprocessor = preprocessor
        self._tower = tower
        self._of_tokens = {name: each for name, each in (encoders or {}).items() if each.reads}
        self._of_texts = {name: each for name, each in (encoders or {}).items() if not each.reads}
        self._outputs = _outputs_read(self._of_tokens)
        self.dimensions = tower.dimensions

    @classmethod
    def open(
        cls,
        model: Model,
        terms: TermTable,
        device: Device,
        jobs: Mapping[str, EncodeJob],  # name of a component -> its encoding job
    ) -> Self:
        """Opens the tower and the encoders."""
        encoders = {name: job.open(model, terms, device) for name, job in jobs.items()}
        tokens = batch_tokens(device)
        graph = TERMS_TOWER if TERMS in _outputs_read(encoders) else DOCUMENT_TOWER
        tower = Encoder(model.folder / graph, model.preprocessor.pieces.pad_id, device, 1, tokens)
        return cls(model.with_terms(terms), tower, encoders)

    def encode(self, texts: Sequence[Document]) -> EncodedTexts:
        """Encodes one to a few hundred texts; all are held in memory."""
        ((read, lost, sequences),) = preprocess_documents(texts, self._preprocessor)
        vectors, records = self._pass(read, sequences)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            bad = read[int(np.flatnonzero(~finite)[0])].id
            raise EncodeError(f"the vector of document {bad!r} is not finite")
        whole = Texts(read, sequences, vectors, {})
        for name, encoder in self._of_texts.items():
            try:
                records[name] = encoder.encode(whole)
            except ValueError as error:
                raise EncodeError(f"of the documents from {read[0].id!r} on, {error}", name) from error
        return EncodedTexts(lost, vectors, records)

    def _pass(
        self, texts: Sequence[Document], sequences: Sequence[WeightedTokens]
    ) -> tuple[NDArray[np.float32], dict[str, Records]]:
        """The tower's vectors, float32 [n, D], and the records made from its other outputs."""
        if not self._of_tokens:
            return self._tower.encode(sequences), {}
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        order: list[int] = []
        records: dict[str, list[Records]] = {name: [] for name in self._of_tokens}
        for rows in batches_by_length([len(each) for each in sequences], self._tower.batch_tokens):
            mates = [sequences[row] for row in rows]
            vectors[rows], *others = self._tower.run_outputs(mates, (VECTOR, *self._outputs))
            outputs = dict(zip(self._outputs, others, strict=True))
            batch = Texts([texts[row] for row in rows], mates, vectors[rows], outputs)
            for name, encoder in self._of_tokens.items():
                try:
                    records[name].append(encoder.encode(batch))
                except ValueError as error:
                    raise EncodeError(str(error), name) from error
            order += rows
        return vectors, {name: _in_order(each, order) for name, each in records.items()}


def _outputs_read(encoders: Mapping[str, RowEncoder]) -> tuple[str, ...]:
    return tuple(sorted({output for each in encoders.values() for output in each.reads}))


def _in_order(batches: Sequence[Records], order: Sequence[int]) -> Records:
    """Joins the records of batches, in the order of the texts."""
    counts = np.concatenate([each.counts for each in batches])
    pieces = [piece for each in batches for piece in np.split(each.records, np.cumsum(each.counts)[:-1])]
    places = np.argsort(order)
    return Records(np.concatenate([pieces[place] for place in places.tolist()]), counts[places])


def batch_tokens(device: Device) -> int:
    """The number of tokens per batch that suits a device."""
    return CPU_BATCH_TOKENS if device == "cpu" else DEFAULT_BATCH_TOKENS


def encode_jobs(
    made: Segment,
    rules: Mapping[str, Rules],  # name of a component -> its rules
) -> dict[str, EncodeJob]:
    """Name of each component that has records -> its encoding job."""
    jobs = {
        component.name: component.encoding(made, rules[component.name])
        for component in COMPONENTS
        if component.name in rules
    }
    return {name: job for name, job in jobs.items() if job is not None}


@dataclass(frozen=True, slots=True, eq=False)
class KnownText:
    """A document or passage whose vector is known."""

    vector: NDArray[np.float32]  # float32 [D], L2-normalized
    is_first: bool  # whether it is the first text of its document


Text = Document | KnownText


class KnownVectors:
    """Vectors of a version's documents, if the same fields give the same input of the encoder; thread-safe."""

    def __init__(self, live: OpenVersion) -> None:
        self._live = live
        self._documents = live.documents

    def of(self, document: Document) -> NDArray[np.float32] | None:
        """The vectors of its texts, float32 [texts, D]; None if the version lacks the document or holds other fields."""
        row = self._documents.find(document.id)
        if row is None:
            return None
        (stored,) = self._documents.rows([row])
        if dict(stored.fields) != {name: texts for name, texts in document.fields.items() if texts}:
            return None
        delta, place = self._live.delta, row - self._live.base.rows.documents
        segment = self._live.base if place < 0 or delta is None else delta.segment
        if not segment.below:
            place = row
            if segment.has(STORE_FILE):  # on a server, which an upsert does not need otherwise
                return None
        first = segment.rows.first
        rows = [place] if first is None else range(int(first[place]), int(first[place + 1]))
        return segment[VECTORS].vectors(np.array(rows, np.int64))


def texts_with_known(
    documents: Iterable[tuple[int, Document]],  # with their rows
    texts_of: TextsOfDocuments,
    known: KnownVectors | None,
) -> Iterator[Text]:
    """Yields the texts of documents in order; those with known vectors as `KnownText`."""
    for row, document in documents:
        vectors = None if known is None else known.of(document)
        if vectors is None:
            yield from texts_of.of(document, row)
        else:
            yield from (KnownText(vector, place == 0) for place, vector in enumerate(vectors))


def encode_unknown(encoder: TextEncoder, texts: Sequence[Text]) -> EncodedTexts:
    """As `TextEncoder.encode`, but the known vectors are taken; only without encoders of records."""
    new = [text for text in texts if isinstance(text, Document)]
    encoded = encoder.encode(new) if new else EncodedTexts({}, np.empty((0, encoder.dimensions), np.float32))
    if len(new) == len(texts):
        return encoded
    vectors, rest = [], iter(encoded.vectors)
    for text in texts:
        vectors.append(text.vector if isinstance(text, KnownText) else next(rest))
    reused = sum(isinstance(text, KnownText) and text.is_first for text in texts)
    return encoded._replace(vectors=np.stack(vectors), reused=reused)
