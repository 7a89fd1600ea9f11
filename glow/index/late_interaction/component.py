"""Late interaction as a component of an index: binary embeddings of every document token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError, MismatchError
from glow.index.component import Asked, ComponentOptions, RowComponent, Rules
from glow.index.corpus import Corpus
from glow.index.late_interaction.codes import CodedTokens
from glow.index.late_interaction.encode import LateJob, coded_of
from glow.index.late_interaction.format import LATE_FILES, LATE_FOLDER, LATE_HEADER, LateHeader
from glow.index.late_interaction.joined import SegmentedLate
from glow.index.late_interaction.pooling import BUDGET
from glow.index.late_interaction.scoring import MOST_NUMBERS
from glow.index.late_interaction.store import LateTokens, LateWriter
from glow.index.late_interaction.view import LateView, StoredLate
from glow.index.postings import POSTINGS
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.options import option

__all__ = ["LATE_INTERACTION", "LateInteraction", "LateOptions", "LateRules"]


class LateOptions(ComponentOptions):
    """Whether token embeddings are stored."""

    late_interaction: bool | None = option(
        None,
        "Store binary token vectors for late interaction; default: if the model has them and the index a lexical part.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRules(Rules):
    """How token embeddings are stored.

    Attributes:
        header: of the store, with counts of 0.
    """

    header: LateHeader


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
                f"--late-interaction: model {model.label} gives no token vectors; add them (glow export-model --add-tokens)"
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
            "(glow export-model --add-tokens), without --no-late-interaction"
        )
        return {"late": lacks if reader is None else ""}

    def info(self, reader: LateView | None) -> dict[str, Any]:
        """Parameters of the store."""
        stored = None if reader is None else {"size": reader.header.size, "budget": reader.header.budget}
        return {"late": stored}


LATE_INTERACTION = LateInteraction()
