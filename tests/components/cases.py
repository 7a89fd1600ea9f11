"""A component in a kind of index, and how its index is made, changed and merged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.index import (
    COMPONENTS,
    MergeSource,
    Rows,
    Segment,
    View,
    held_rules,
    join_segments,
    joined_order,
    merge_segments,
)
from glow.index.columns import COLUMNS
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from tests.components.kinds import NEW, OLD, document_of
from tests.components.probes import PROBES, Seen
from tests.components.worlds import AnyComponent, Maker

__all__ = ["Case", "Changed", "Segments", "all_of", "files_of", "needs_of", "view_of"]


def files_of(folder: Path, component: AnyComponent) -> dict[str, bytes]:
    """A component's own files: path -> content."""
    names = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {name: path.read_bytes() for name, path in names.items() if name.startswith(component.paths)}


def all_of(segment: Segment) -> MergeSource:
    """Every document of a segment."""
    return MergeSource(segment, np.ones(segment.rows.documents, np.bool_))


def view_of(segment: Segment) -> View:
    """A segment without a delta, as searches see it."""
    made = [component for component in COMPONENTS if segment.get(component) is not None]
    readers = {component.name: component.alone(segment[component], segment) for component in made}
    return View(segment.name, segment.rows, readers)


@dataclass
class Segments:
    """Segments of one kind of index, in folders of their own.

    Attributes:
        maker: makes them.
        new_folder: a folder that is not there yet.
    """

    maker: Maker
    new_folder: Callable[[], Path]

    def base(self, held: Sequence[Document], **changed: Any) -> Segment:
        """As a build makes it."""
        return self.maker.base(held, self.new_folder(), **changed)

    def delta(self, base: Segment, held: Sequence[Document]) -> Segment:
        """As an upsert makes it; of no documents, as a deletion does."""
        return self.maker.added(base, held, held_rules(base, delta=True), self.new_folder())

    def rebuilt(self, base: Segment, held: Sequence[Document]) -> Segment:
        """A whole index of documents that are encoded and counted by the rules of a base."""
        rules, own = held_rules(base, delta=True), held_rules(base, delta=False)
        rules["vectors"] = own["vectors"]  # they do not decide what is searched
        return self.maker.added(base, held, rules, self.new_folder(), below="")

    def joined(self, base: Segment, delta: Segment, gone: NDArray[np.int64]) -> View:
        """Both as one."""
        ids = [document.id for document in delta[STORED_FIELDS].scan()]
        order = joined_order(base[COLUMNS].order, base[STORED_FIELDS], ids)
        return join_segments(base, delta, gone, order)

    def merged(self, kept: Sequence[MergeSource], *, delta: bool) -> Segment:
        """One segment of what stays."""
        oldest, folder = kept[0].segment, self.new_folder()
        folder.mkdir(parents=True)
        rows = Rows(sum(each.documents for each in kept))
        made = replace(oldest, folder=folder, files=None, rows=rows, readers={})
        if not delta:
            made = replace(made, root=folder)
        merge_segments(kept, made, delta=delta)
        return made


@dataclass(frozen=True)
class Changed:
    """An index that was changed.

    Attributes:
        base, delta: its segments.
        gone: rows of the base that are gone.
        left: the documents that can be found, in the order of rows.
    """

    base: Segment
    delta: Segment
    gone: NDArray[np.int64]
    left: list[Document]

    @property
    def kept(self) -> list[MergeSource]:
        """What stays of both."""
        live = np.ones(self.base.rows.documents, np.bool_)
        live[self.gone] = False
        return [MergeSource(self.base, live), all_of(self.delta)]


@dataclass
class Case:
    """A component in a kind of index.

    Attributes:
        component: the component.
        segments: makes segments of the kind.
        shared: what tests of the same kind have made.
    """

    component: AnyComponent
    segments: Segments
    shared: dict[str, Any]

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made once for all components."""
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]

    def answers(self, view: View) -> Any:
        """What the component says of every document."""
        return PROBES[self.component.name](Seen.of(view))

    def changed(self) -> Changed:
        """Documents replaced, added and deleted."""
        return self.once("changed", lambda: self.change(OLD, NEW, ("d/20", "d/21", "d/5")))

    def change(self, old: Sequence[Any], new: Sequence[Any], deleted: Sequence[str] = ()) -> Changed:
        """A base of some records, a delta of others, and what is gone."""
        before, after = [document_of(each) for each in old], [document_of(each) for each in new]
        base = self.segments.base(before, **({} if len(before) > 30 else {"index": "flat"}))
        lost = {each.id for each in after} | set(deleted)
        gone = np.array([row for row, each in enumerate(before) if each.id in lost], np.int64)
        left = [each for each in before if each.id not in lost] + after
        return Changed(base, self.segments.delta(base, after), gone, left)

    def check(self, changed: Changed) -> None:
        """Base and delta answer as one index of what is left; what is of the whole index counts what is gone until it is compacted."""
        joined = self.segments.joined(changed.base, changed.delta, changed.gone)
        held = changed.left
        if self.component.per == "index":
            old = enumerate(changed.base[STORED_FIELDS].scan())
            held = [replace(each, id=f"gone/{each.id}") for row, each in old if row in changed.gone] + held
        key = "rebuilt" + "".join(map(repr, held))
        rebuilt = self.once(key, lambda: self.segments.rebuilt(changed.base, held))
        assert joined.holds(self.component)
        assert self.answers(joined) == self.answers(view_of(rebuilt))


def needs_of(component: AnyComponent) -> set[str]:
    """Names of all that a component needs, and of what those need."""
    names = set(component.needs)
    for other in COMPONENTS:
        if other.name in component.needs:
            names |= needs_of(other)
    return names
