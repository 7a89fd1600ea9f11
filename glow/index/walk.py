"""Operations over all components of an index, in order; this module names none of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index.component import Asked, Component, Explained, Rules
from glow.index.components import COMPONENTS
from glow.index.milvus import STORED_FOLDER, open_stored
from glow.index.segment import MergeSource, Rows, Segment, View
from glow.index.segments import BaseAndDelta, Segments
from glow.options import StrictModel

__all__ = [
    "AnyComponent", "asked_rules", "causes_of_refusal", "counts_of", "explain_hit", "held_rules", "info_of", "is_made_anew", "join_segments",
    "merge_segments", "open_component", "open_segment", "parts_of", "view_of",
]  # fmt: skip

AnyComponent = Component[Any, Any, Any, Any]
STORED_PATH = f"{STORED_FOLDER}/"
Stage = Callable[[AnyComponent], AbstractContextManager[object]]
"""Context manager of a component's merge, such as a stage of a report."""


def asked_rules(options: StrictModel, asked: Asked) -> dict[str, Rules]:
    """The requested components of a build: name -> rules.

    Args:
        options: of the build, including those of every component.
        asked: other inputs; its rules are filled in.

    Raises:
        ConfigError, DeviceError, DependencyError, StoreError: as `Component.rules`.
    """
    rules: dict[str, Rules] = {}
    for component in COMPONENTS:
        values = {name: getattr(options, name) for name in component.options.model_fields}
        own = component.rules(component.options.model_validate(values), replace(asked, rules=rules))
        if own is not None:
            rules[component.name] = own
    return rules


def held_rules(segment: Segment, *, delta: bool) -> dict[str, Rules]:
    """The rules of a segment's components: see `Component.rules_of`, to extend it or to replace it."""
    found = ((component.name, component.rules_of(segment, delta=delta)) for component in COMPONENTS)
    return {name: rules for name, rules in found if rules is not None}


def is_made_anew(name: str) -> bool:
    """Whether a file of a version belongs to a component, and a compaction rewrites it."""
    return name.startswith(STORED_PATH) or any(name.startswith(component.paths) for component in COMPONENTS)


def open_component(component: AnyComponent, segment: Segment) -> Any:
    """Opens a component, from its files or from a collection that has its rows; None: the segment lacks it.

    Raises:
        ArtifactError, StoreError: as `Component.open` and `open_stored`.
    """
    stored = open_stored(component, segment)
    return component.open(segment) if stored is None else stored


def open_segment(segment: Segment, like: Segment | None = None) -> Segment:
    """Opens every component; readers of identical files are taken from another open segment.

    Raises:
        ArtifactError: as `Component.open`.
    """
    for component in COMPONENTS:
        paths = (
            STORED_PATH,
            *(path for each in _with_needs(component) for path in (*each.paths, *each.stays)),
        )
        reader = like.get(component) if like is not None and segment.shares(like, paths) else None
        reader = open_component(component, segment) if reader is None else reader
        if reader is not None:
            segment = segment.with_reader(component, reader, component.first(reader))
    return segment


def _with_needs(component: AnyComponent) -> Iterator[AnyComponent]:
    """A component and all that it needs."""
    yield component
    for other in COMPONENTS:
        if other.name in component.needs:
            yield from _with_needs(other)


def view_of(segment: Segment) -> View:
    """A segment without a delta, for searches."""
    readers = {
        component.name: component.alone(segment[component], segment)
        for component in COMPONENTS
        if segment.get(component) is not None
    }
    return View(segment.name, segment.rows, readers)


def join_segments(
    base: Segment, delta: Segment, tombstones: NDArray[np.int64], order: NDArray[np.uint32]
) -> View:
    """A base and its delta as one.

    Args:
        base, delta: N and M documents.
        tombstones: deleted rows of the base, int64 [t], ascending.
        order: uint32 [N + M], the rank of each document's id among those of both.

    Raises:
        MismatchError: if one of them lacks a component, or they do not belong together.
        DeviceError: as `Component.join`.
    """
    live = np.ones(base.rows.documents, np.bool_)
    live[tombstones] = False
    documents = Segments(base.rows.documents, delta.rows.documents, tombstones)
    vectors, first = documents, None
    if base.rows.first is not None and delta.rows.first is not None:
        gone = base.rows.held("vector", ~live)
        vectors = Segments(base.rows.count("vector"), delta.rows.count("vector"), gone)
        first = np.concatenate([base.rows.first[:-1], delta.rows.first + base.rows.first[-1]])
    readers = {}
    for component in COMPONENTS:
        old, new = base.get(component), delta.get(component)
        if old is None and component.per == "index":
            continue  # old versions of GLOW lack it, and the delta's alone would count for all
        if (old is None) != (new is None):
            where = "delta" if old is None else "base"
            raise MismatchError(
                f"index {base.name}: {component.label} in its {where} alone; roll back to its base"
            )
        if old is not None:
            segments = vectors if component.per == "vector" else documents
            both = BaseAndDelta(base.name, old, new, segments, tombstones, order)
            readers[component.name] = component.join(both)
    return View(base.name, Rows(len(documents), first), readers)


def merge_segments(
    kept: Sequence[MergeSource],
    made: Segment,
    *,
    delta: bool,
    stage: Stage = lambda component: nullcontext(),
) -> Segment:
    """Merges the live documents of several segments: into a new delta, or a compacted version.

    Args:
        kept: segments with the same components; the rules are those of the first.
        made: destination; the result has its components open.
        delta: whether it is a delta.
        stage: context manager of each merge.

    Raises:
        OSError: if the disk is full or cannot be written.
        ArtifactError: if the segments do not belong together.
    """
    for component in COMPONENTS:
        rules = component.rules_of(kept[0].segment, delta=delta)
        if rules is None:
            continue
        with stage(component):
            component.merge(kept, rules, made)
        reader = component.open(made)
        if reader is not None:
            made = made.with_reader(component, reader, component.first(reader))
    return made


def causes_of_refusal(view: View) -> Mapping[str, str]:
    """Request -> "", or why the index cannot serve it, for every request that a component knows."""
    causes: dict[str, str] = {}
    for component in COMPONENTS:
        for request, cause in component.serves(view.get(component)).items():
            causes[request] = causes.get(request) or cause
    return causes


def info_of(view: View) -> dict[str, Any]:
    """The components' entries in `/info`."""
    members: dict[str, Any] = {}
    for component in COMPONENTS:
        members |= component.info(view.get(component))
    return members


def counts_of(view: View) -> dict[str, int]:
    """The components' counts, for a manifest."""
    counts: dict[str, int] = {}
    for component in COMPONENTS:
        if view.holds(component):
            counts |= component.counts(view[component])
    return counts


def parts_of(view: View) -> list[str]:
    """Components that are optional, or were missing in older versions, as `/info` names them."""
    return [component.part for component in COMPONENTS if component.part and view.holds(component)]


def explain_hit(view: View, retriever: str, words: Sequence[str], hit: Explained) -> dict[str, Any]:
    """The components' entries in the explanation of a hit."""
    members: dict[str, Any] = {}
    for component in COMPONENTS:
        reader = view.get(component)
        if reader is not None:
            members |= component.explain(reader, retriever, words, hit)
    return members
