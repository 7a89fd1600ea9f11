"""Late interaction as a component of an index: binary embeddings of every document token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError, MismatchError
from glow.index.component import Asked, ComponentOptions, Corpus, Records, RowComponent, Rules, Texts
from glow.index.late_interaction.scoring import BUDGET, MOST_NUMBERS, stored_tokens
from glow.index.late_interaction.store import (
    LATE_FILES,
    LATE_FOLDER,
    LATE_HEADER,
    CodedTokens,
    LateHeader,
    LateTokens,
    LateWriter,
    code_texts,
)
from glow.index.postings import POSTINGS
from glow.index.ranking import set_numpy_threads
from glow.index.segment import BaseAndDelta, MergeSource, Segment
from glow.options import option
from glow.runtime import TOKENS, Device, Model
from glow.text import TermTable


class LateView(Protocol):
    """Token embeddings for searches; `LateTokens` describes each method. Rows are those of vectors."""

    @property
    def header(self) -> LateHeader: ...
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    def places(self, row: int) -> NDArray[np.uint16]: ...


class StoredLate(LateView, Protocol):
    """The token embeddings of one segment, for joining and merging; `LateTokens` describes each method."""

    def coded(self, rows: NDArray[np.int64]) -> CodedTokens: ...
    def require_like(self, other: LateHeader) -> None: ...


class SegmentedLate:
    """Token embeddings of both, from one model and of one size; arguments as for `LateTokens`."""

    def __init__(
        self,
        both: BaseAndDelta[StoredLate],  # the stores
    ) -> None:
        self._both = both
        self.header: LateHeader = both.base.header

    def __len__(self) -> int:
        return len(self._both.segments)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of rows, int64 [m]."""
        return self._both.gather(rows, lambda reader, here: reader.lengths(here))

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Codes of rows, and the start of each row."""
        lengths, first = self.lengths(rows), self._both.segments.base
        is_new = np.repeat(rows >= first, lengths)
        codes = np.empty((len(is_new), self.header.size // 8), np.uint8)
        codes[~is_new] = self._both.base.read(rows[rows < first])[0]
        codes[is_new] = self._both.delta.read(rows[rows >= first] - first)[0]
        return codes, np.cumsum(lengths) - lengths

    def places(self, row: int) -> NDArray[np.uint16]:
        """Positions of the tokens that a row's codes represent."""
        store, own = self._both.owner(row)
        return store.places(own)


@dataclass(frozen=True, slots=True)
class LateJob:
    """How token embeddings are stored."""

    size: int  # P, dimensions of a token embedding
    budget: int  # most tokens of a document or passage

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a token: its position in the text, and its signs."""
        return np.dtype([("place", "<u2"), ("code", "u1", (self.size // 8,))])

    def open(self, model: Model, terms: TermTable, device: Device) -> "LateEncoder":
        """As `EncodeJob`; loads nothing."""
        set_numpy_threads(1)
        return LateEncoder(self)


class LateEncoder:
    """Converts the tower's token embeddings to codes; safe to use from many threads."""

    reads: tuple[str, ...] = (TOKENS,)

    def __init__(
        self,
        job: LateJob,  # parameters of the store
    ) -> None:
        self._job = job

    def encode(self, batch: Texts) -> Records:
        """Codes of documents or passages, in their order, at least one for each."""
        tokens = list(batch.outputs[TOKENS])
        for document, sequence, read in zip(batch.texts, batch.sequences, tokens, strict=True):
            if not np.isfinite(read[stored_tokens(sequence)]).all():
                raise ValueError(f"the token vectors of document {document.id!r} are not finite")
        coded = code_texts(batch.sequences, tokens, self._job.budget)
        records = np.empty(len(coded.codes), self._job.dtype)
        records["place"], records["code"] = coded.places, coded.codes
        return Records(records, coded.lengths)


def coded_of(records: Records) -> CodedTokens:
    """Stored rows from records of `LateEncoder`."""
    tokens = records.records
    return CodedTokens(records.counts, tokens["code"], tokens["place"])


class LateOptions(ComponentOptions):
    """Whether token embeddings are stored."""

    late_interaction: bool | None = option(
        None,
        "Store binary token vectors for late interaction; default: if the model has them and the index a lexical part.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRules(Rules):
    """How token embeddings are stored."""

    header: LateHeader  # of the store, with counts of 0


class LateInteraction(RowComponent[StoredLate, LateView, LateRules, LateOptions, CodedTokens]):
    """Binary token vectors of every document or passage."""

    name, label, stage, part = "late_interaction", "token vectors", "late", "late"
    per = "vector"
    paths = (f"{LATE_FOLDER}/",)
    options = LateOptions

    def rules(self, options: LateOptions, asked: Asked) -> LateRules | None:
        """Uses the model's token output, if any. Only hybrid search needs it, so an index without terms lacks it."""
        wanted = options.late_interaction
        if wanted is False or (wanted is None and POSTINGS.name not in asked.rules):
            return None
        model = asked.model
        size = model.encoder("document").token_size
        if size is None and options.late_interaction is None:
            return None
        if size is None:
            raise ConfigError(
                f"--late-interaction: model {model.label} gives no token vectors; export it again (glow export-model --token-size)"
            )
        if not 0 < size <= MOST_NUMBERS:
            raise ConfigError(
                f"model {model.label} gives tokens of {size} numbers, expected at most {MOST_NUMBERS}; leave them out (--no-late-interaction)"
            )
        return LateRules(header=LateHeader(model=model.hash, size=size, budget=BUDGET, rows=0, tokens=0))

    def rules_of(self, segment: Segment, *, delta: bool) -> LateRules | None:
        """The same dimensions and token limit."""
        late = segment.get(self)
        return (
            None
            if late is None
            else LateRules(header=late.header.model_copy(update={"rows": 0, "tokens": 0}))
        )

    def encoding(self, made: Segment, rules: LateRules) -> LateJob:
        """Uses outputs that the document tower computes anyway."""
        return LateJob(rules.header.size, rules.header.budget)

    def blocks(self, corpus: Corpus, rules: LateRules) -> Iterator[CodedTokens]:
        """The encoded rows."""
        for records in corpus.encoded.records(self.name):
            if len(records.counts):
                yield coded_of(records)

    def stored(self, reader: StoredLate, rows: NDArray[np.int64]) -> CodedTokens:
        """Reads them; nothing is encoded again."""
        return reader.coded(rows)

    def write(self, folder: Path, rules: LateRules, blocks: Iterator[CodedTokens]) -> None:
        """Writes the store in constant memory."""
        with LateWriter(folder / LATE_FOLDER, rules.header) as writer:
            for block in blocks:
                writer.add(block)
            writer.close()

    def merge(self, kept: Sequence[MergeSource], rules: LateRules, made: Segment) -> None:
        """Copies the codes of live rows; stores of different models, sizes or limits are refused."""
        for each in kept:
            each.segment[self].require_like(rules.header)
        super().merge(kept, rules, made)

    def report(self, made: Segment, rules: LateRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Parameters and size."""
        header = made[self].header
        size_bytes = sum(path.stat().st_size for path in made.path(LATE_FOLDER).iterdir())
        stored = {
            "size": header.size,
            "budget": header.budget,
            "tokens": header.tokens,
            "bytes": size_bytes,
            "bytes_per_document": round(size_bytes / max(made.rows.documents, 1), 1),
        }
        return {"late": stored}

    def open(self, segment: Segment) -> LateTokens | None:
        """Opens the store, which must be that of the version's model."""
        if not segment.has_any(self.paths):
            return None
        segment.require(*(f"{LATE_FOLDER}/{name}" for name in LATE_FILES))
        late = LateTokens.open(segment.path(LATE_FOLDER), segment.rows.count(self.per))
        expected = segment.hashes.get("model", "none")
        if segment.files is not None and late.header.model != expected:
            raise MismatchError(
                f"{segment.below}{LATE_FOLDER}/{LATE_HEADER} says that model {late.header.model[:12]} made the token vectors, "
                f"the index is of {expected[:12]}; {segment.remedy}"
            )
        return late

    def alone(self, reader: StoredLate, segment: Segment) -> LateView:
        """The store itself."""
        return reader

    def join(self, both: BaseAndDelta[StoredLate]) -> LateView:
        """Rows of both, if model and size are the same."""
        both.delta.require_like(both.base.header)
        return SegmentedLate(both)

    def serves(self, reader: LateView | None) -> Mapping[str, str]:
        """Late interaction in hybrid search."""
        lacks = (
            "this index holds no token vectors for the second stage; build it with a model that has a token output "
            "(glow export-model --token-size), without --no-late-interaction"
        )
        return {"late": lacks if reader is None else ""}

    def info(self, reader: LateView | None) -> dict[str, Any]:
        """Parameters of the store."""
        stored = None if reader is None else {"size": reader.header.size, "budget": reader.header.budget}
        return {"late": stored}


LATE_INTERACTION = LateInteraction()
