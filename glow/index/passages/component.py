"""Passages as a component of an index: positions where long documents are split, so that each passage has a vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.columns import COLUMNS
from glow.index.component import Asked, Component, ComponentOptions, Rules
from glow.index.corpus import Corpus
from glow.index.passages.build import build_passages
from glow.index.passages.map import PASSAGES_FILES, PASSAGES_FOLDER, PassageMap, read_passages_header
from glow.index.passages.merge import merge_passages
from glow.index.segment import MergeSource, Segment
from glow.index.segments import BaseAndDelta
from glow.options import option
from glow.text import PassageCutter, PassageOptions

__all__ = ["PASSAGES", "Passages", "PassagesOptions", "PassagesRules"]

COST_STAGES = ("passages", "encode", "index")
"""The stages that take longer with passages."""


class PassagesOptions(ComponentOptions):
    """Whether and how documents are split."""

    passages: bool = option(False, "Split long documents into passages, each with a vector.")
    passage_field: str | None = option(None, "Field to split; default: the model's body.")
    max_passages: int = option(128, "Most passages per document.", ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassagesRules(Rules):
    """How documents are split.

    Attributes:
        cut: field and limit.
    """

    cut: PassageOptions


class Passages(Component[PassageMap, PassageMap, PassagesRules, PassagesOptions]):
    """Passages of long documents; each vector then belongs to a passage."""

    name = "passages"
    part = "passages"
    label = "passages"
    stage = "passages"
    prepares = "passages"
    paths = (f"{PASSAGES_FOLDER}/",)
    needs = (COLUMNS.name,)
    options = PassagesOptions

    def rules(self, options: PassagesOptions, asked: Asked) -> PassagesRules | None:
        """As requested; a field that the model lacks is refused."""
        if not options.passages:
            return None
        cut = PassageOptions(options.passage_field, options.max_passages)
        PassageCutter(asked.model.preprocessor, cut)
        return PassagesRules(cut=cut)

    def rules_of(self, segment: Segment, *, delta: bool) -> PassagesRules | None:
        """As the header says."""
        passages = segment.get(self)
        if passages is None:
            return None
        header = passages.header
        return PassagesRules(cut=PassageOptions(header.field, header.limit))

    def prepare(self, corpus: Corpus, rules: PassagesRules) -> None:
        """Splits every document, which does not depend on term statistics."""
        cutter = PassageCutter(corpus.model.preprocessor, rules.cut)
        build_passages(corpus.documents(), cutter, corpus.made.folder, corpus.advance)

    def build(self, corpus: Corpus, rules: PassagesRules) -> None:
        """Does nothing: documents were split before they were encoded."""

    def merge(self, kept: Sequence[MergeSource], rules: PassagesRules, made: Segment) -> None:
        """Copies the positions of live documents."""
        merge_passages(self, kept, made.folder)

    def report(self, made: Segment, rules: PassagesRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Number of passages, and encoding time per passage."""
        return {"passages": _describe(made[self], seconds)}

    def counts(self, reader: PassageMap) -> dict[str, int]:
        """Number of passages."""
        return {"passages": reader.count}

    def open(self, segment: Segment) -> PassageMap | None:
        """Opens the directory; an unfinished segment has no columns yet, so no order of ties."""
        if not segment.has_any(self.paths):
            return None
        segment.require(*PASSAGES_FILES)
        folder, columns = segment.path(PASSAGES_FOLDER), segment.get(COLUMNS)
        found, expected = read_passages_header(folder).documents, segment.rows.documents
        if found != expected and segment.below:
            raise MismatchError(
                f"{segment.below}{PASSAGES_FOLDER}/ holds {found} documents, "
                f"{segment.below}delta.json says {expected} documents; {segment.remedy}"
            )
        if found != expected:
            raise MismatchError(
                f"index {segment.name}: {PASSAGES_FOLDER}/ holds {found} documents, its manifest {expected}; {segment.remedy}"
            )
        return PassageMap.open(folder, columns.order if columns else None)

    def first(self, reader: PassageMap) -> NDArray[np.uint32]:
        """Vectors belong to passages."""
        return reader.first

    def alone(self, reader: PassageMap, segment: Segment) -> PassageMap:
        """The map itself."""
        return reader

    def join(self, both: BaseAndDelta[PassageMap]) -> PassageMap:
        """One map of both."""
        gone = int(np.diff(both.base.first)[both.tombstones].sum())
        return both.base.followed_by(both.delta, both.order, gone)

    def info(self, reader: PassageMap | None) -> dict[str, Any]:
        """Number of live passages."""
        return {"passages": None if reader is None else reader.count}


PASSAGES = Passages()


def _describe(passages: PassageMap, seconds: Mapping[str, float]) -> dict[str, Any]:
    header = passages.header
    sizes = passages.first[1:] - passages.first[:-1]
    took = sum(seconds.get(name, 0.0) for name in COST_STAGES)
    return {
        "field": header.field,
        "limit": header.limit,
        "count": header.passages,
        "per_document": round(header.passages / header.documents, 3),
        "most": int(sizes.max()),
        "whole_documents": int((sizes == 1).sum()),
        "cut_off_documents": header.left_out,
        "milliseconds_each": round(1_000 * took / header.passages, 3),
    }
