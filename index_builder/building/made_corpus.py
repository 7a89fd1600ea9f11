"""The documents of a build or an upsert, as a `Corpus` of `glow.index` for the components."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from glow.errors import ArtifactError, BuildError
from glow.index import AnyComponent, Encoded, ImportRows, RangeTask, Segment
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.building.staged import Advance

__all__ = ["MadeCorpus"]


@dataclass(slots=True, eq=False)
class MadeCorpus:
    """Documents and the components that are built so far.

    Attributes:
        model, terms, counted, counted_terms, made, notes, threads, spread: as `Corpus` says.
        encoded: as `Corpus` says; available once the texts are encoded.
    """

    model: Model
    terms: TermTable
    counted: TermTable
    counted_terms: TermTable
    made: Segment
    notes: Path
    threads: int
    spread: Callable[[RangeTask], ImportRows] | None = None
    encoded: Encoded = field(init=False)
    _advance: Advance = field(init=False, default=lambda count: None)

    def documents(self) -> Iterator[Document]:
        """As `Corpus`."""
        return self.made[STORED_FIELDS].scan()

    def advance(self, count: int) -> None:
        """As `Corpus`."""
        self._advance(count)

    def write_to(self, folder: Path, earlier: tuple[Path, ...], advance: Advance) -> None:
        """Sets the directory that the next component writes into.

        Args:
            folder: directory of its step.
            earlier: directories of the earlier steps.
            advance: called with the number of finished rows.
        """
        self.made = replace(self.made, folder=folder, earlier=earlier)
        self._advance = advance

    def open(self, component: AnyComponent, folders: tuple[Path, ...]) -> None:
        """Opens a finished component.

        Args:
            component: its step is done.
            folders: directories of all steps, newest first.

        Raises:
            BuildError: if its files cannot be opened.
        """
        self.made = replace(self.made, folder=folders[0], earlier=folders[1:])
        try:
            reader = component.open(self.made)
        except ArtifactError as error:
            raise BuildError(f"the {component.label} that were built cannot be opened: {error}") from error
        if reader is not None:
            self.made = self.made.with_reader(component, reader, component.first(reader))
