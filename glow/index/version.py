"""An open index version: everything that a search needs, verified to belong together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.artifact import FileKey, Manifest, verify
from glow.errors import MismatchError
from glow.index.columns import COLUMNS
from glow.index.component import BuildInputs, Component, Explained, Rules
from glow.index.delta import DELTA_HEADER, DeltaRows
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.milvus import STORED_FOLDER, open_stored
from glow.index.models import Models, model_parent, open_models
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.segment import DELTA, Files, Key, MergeSource, RowLayout, Rows, Segment, Segments, View
from glow.index.settings import (
    DEFAULT_FUSION,
    DEFAULT_RERANK_WEIGHT,
    UNCALIBRATED,
    CalibratedFusion,
    Fusion,
    RerankWeight,
    load_calibration,
    load_fusion,
    load_rerank_weight,
)
from glow.index.spelling import SPELLING, Speller
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.index.vectors import VECTORS
from glow.options import StrictModel
from glow.runtime import Device, Encoder, Explainer, Reranker
from glow.text import Analyzer, Preprocessor

COMPONENTS: list[Component[Any, Any]] = [
    STORED_FIELDS,
    COLUMNS,
    PASSAGES,
    POSTINGS,
    SPELLING,
    LEARNED_SPARSE,
    TOKEN_EMBEDDINGS,
    VECTORS,
]
"""A list, so that a test can add a component."""


AnyComponent = Component[Any, Any]
STORED_PATH = f"{STORED_FOLDER}/"
Stage = Callable[[AnyComponent], AbstractContextManager[object]]
"""Context manager of a component's merge, such as a stage of a report."""


def requested_rules(options: StrictModel, inputs: BuildInputs) -> dict[str, Rules]:
    """The requested components of a build: name -> rules."""
    rules: dict[str, Rules] = {}
    for component in COMPONENTS:
        own_options = component.options.model_validate(options, from_attributes=True)
        own = component.rules(own_options, replace(inputs, rules=rules))
        if own is not None:
            rules[component.name] = own
    return rules


def existing_rules(segment: Segment, *, delta: bool) -> dict[str, Rules]:
    """The rules of a segment's components: see `Component.rules_of`, to extend it or to replace it."""
    pairs = ((component.name, component.rules_of(segment, delta=delta)) for component in COMPONENTS)
    return {name: rules for name, rules in pairs if rules is not None}


def is_made_anew(name: str) -> bool:
    """Whether a file of a version belongs to a component, and a compaction rewrites it."""
    return name.startswith(STORED_PATH) or any(name.startswith(component.paths) for component in COMPONENTS)


def open_component(component: AnyComponent, segment: Segment) -> Any:
    """Opens a component, from its files or from a collection that has its rows; None: the segment lacks it."""
    stored = open_stored(component, segment)
    return component.open(segment) if stored is None else stored


def open_segment(segment: Segment, like: Segment | None = None) -> Segment:
    """Opens every component; readers of identical files are taken from another open segment."""
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


NO_ROWS, NO_ORDER = np.empty(0, np.int64), np.empty(0, np.uint32)


def view_of(
    segments: Sequence[Segment],  # the base first, then what was added to it
    gone: NDArray[np.int64] = NO_ROWS,  # deleted documents, rows over all segments, ascending
    order: NDArray[np.uint32] = NO_ORDER,  # uint32 [n], the rank of each document's id among those of all
) -> View:
    """Segments as one, for searches."""
    documents, vectors, first = _layouts(segments, gone)
    readers = {}
    for component in COMPONENTS:
        own = [segment.get(component) for segment in segments]
        lacking = [reader is None for reader in own]
        if all(lacking) or (lacking[0] and component.per == "index"):
            continue  # a base may lack tables of the whole index, and a delta's alone would not do
        if any(lacking):
            where = "delta" if lacking[0] else "base"
            raise MismatchError(
                f"index {segments[0].name}: {component.label} in its {where} alone; roll back to its base"
            )
        rows = vectors if component.per == "vector" else documents
        parts = Segments(segments[0].name, tuple(own), rows, documents, order)
        readers[component.name] = component.reader(parts)
    return View(segments[0].name, Rows(len(documents), first), readers)


def _layouts(
    segments: Sequence[Segment], gone: NDArray[np.int64]
) -> tuple[RowLayout, RowLayout, NDArray[np.uint32] | None]:
    """The layouts of documents and of vectors, and the first vector of each document, as in `Rows`."""
    documents = RowLayout([segment.rows.documents for segment in segments], gone)
    firsts = [segment.rows.first for segment in segments if segment.rows.first is not None]
    if len(firsts) < len(segments):
        return documents, documents, None
    starts = np.cumsum([0, *(first[-1] for first in firsts)])
    first, lost = firsts[0], NO_ROWS
    if len(firsts) > 1:
        joined = [own[:-1] + start for own, start in zip(firsts, starts, strict=False)]
        first = np.concatenate([*joined, starts[-1:]]).astype(np.uint32)
    if len(gone):
        live = np.ones(len(documents), np.bool_)
        live[gone] = False
        lost = Rows(len(documents), first).held("vector", ~live)
    return documents, RowLayout(np.diff(starts).tolist(), lost), first


def merge_segments(
    sources: Sequence[MergeSource],  # segments with the same components; the rules are those of the first
    target: Segment,  # destination; the result has its components open
    *,
    delta: bool,
    stage: Stage = lambda component: nullcontext(),
) -> Segment:
    """Merges the live documents of several segments: into a new delta, or a compacted version."""
    for component in COMPONENTS:
        rules = component.rules_of(sources[0].segment, delta=delta)
        if rules is None:
            continue
        with stage(component):
            component.merge(sources, rules, target)
        reader = component.open(target)
        if reader is not None:
            target = target.with_reader(component, reader, component.first(reader))
    return target


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


class Delta(NamedTuple):
    """The changes since a version's base."""

    rows: DeltaRows  # row numbers of the delta and of deleted documents
    segment: Segment  # the added documents, open


def files_of(folder: Path, manifest: Manifest) -> Files:
    """Every file of a version, by its path."""
    return {name: (FileKey.of(folder / name), record.sha256) for name, record in manifest.files.items()}


def closed_base(
    folder: Path,
    manifest: Manifest,
    files: Files,
    delta: Delta | None,  # changes since; None if there are none
    device: Device = "cpu",
) -> Segment:
    """The base of a version as a segment, with no component open."""
    documents = manifest.counts.get("documents", 0) if delta is None else delta.rows.header.base_documents
    return _segment(folder, manifest, files, "", documents, device)


def open_delta(folder: Path, manifest: Manifest, files: Files) -> Delta | None:
    """Opens the delta of a version with all components; None if it has none."""
    if DELTA_HEADER not in files:
        return None
    rows = DeltaRows.open(folder, files)
    segment = open_segment(_segment(folder, manifest, files, DELTA, rows.header.documents, "cpu"))
    vectors = segment.rows.count("vector")
    if vectors != rows.header.vectors:
        raise MismatchError(
            f"{DELTA} holds {vectors} vectors, {DELTA_HEADER} says {rows.header.vectors}; roll back to an older version"
        )
    return Delta(rows, segment)


def _segment(
    folder: Path, manifest: Manifest, files: Files, below: str, documents: int, device: Device
) -> Segment:
    own = {
        name.removeprefix(below): key
        for name, key in files.items()
        if name.startswith(below) and name.startswith(DELTA) == bool(below)
    }
    return Segment(
        name=manifest.name,
        folder=folder / below,
        root=folder,
        below=below,
        hashes=manifest.hashes,
        parameters=manifest.parameters,
        files=own,
        rows=Rows(documents),
        device=device,
    )


R = TypeVar("R")

REPORT_FILE = "report.json"
"""Report of the build: counts, times and sizes."""
PLAIN = Analyzer()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Index:
    """One version of an index, immutable and safe to search from many threads.

    `index[VECTORS]` is a component's reader; with a delta, it reads base and delta together.
    """

    manifest: Manifest  # of the version; `manifest.name` is the version
    models: Models  # of the version
    base: Segment  # the open files outside the delta, for `open` of a version that shares some
    delta: Delta | None  # changes since the base; None if there are none
    view: View  # the components, for searches
    order: NDArray[np.uint32]  # the rank of each row's id in code point order, which breaks ties
    fusion: Fusion = DEFAULT_FUSION  # default fusion of a hybrid search
    rerank_weight: RerankWeight = DEFAULT_RERANK_WEIGHT  # weight of a re-ranker's score
    # Corrects the words of queries; None in a version without a lexical component
    speller: Speller | None = None
    # Request, such as a retriever -> why it cannot be served, and how to build an index that can; "" if it
    # can
    refusals: Mapping[str, str] = field(default_factory=dict)
    calibration: CalibratedFusion = UNCALIBRATED  # turn a hybrid search's scores into probabilities

    @classmethod
    def open(
        cls,
        folder: Path,
        device: Device = "cpu",
        threads: int = 1,
        # An open index, on the same device with as many threads. Identical files (hard links) of both
        # versions are neither read nor opened again; their readers are shared
        like: "Index | None" = None,
    ) -> "Index":
        """Verifies every file of a version, then opens it."""
        manifest = verify(folder, "index", dict(like.models.files.values()) if like is not None else None)
        files = files_of(folder, manifest)
        models = open_models(folder, manifest, files, device, threads, like.models if like else None)
        shared = like.base if like is not None and like.models.place == models.place else None
        delta = open_delta(folder, manifest, files)
        base = open_segment(closed_base(folder, manifest, files, delta, device), shared)
        if base[VECTORS].dimensions != models.encoder.dimensions:
            raise MismatchError(
                f"index {manifest.name}: vectors of {base[VECTORS].dimensions} dimensions, "
                f"a query tower of {models.encoder.dimensions}; rebuild the index"
            )
        if delta is None:
            view = view_of([base])
        else:
            view = view_of([base, delta.segment], delta.rows.tombstones, delta.rows.order)
        _check_counts(manifest, view, "rebuild the index" if delta is None else "roll back to its base")
        fusion, rerank_weight = load_fusion(folder, manifest), load_rerank_weight(folder, manifest)
        return cls(
            manifest,
            models,
            base,
            delta,
            view,
            view[COLUMNS].columns.order,
            fusion,
            rerank_weight,
            _speller(models, view),
            causes_of_refusal(view),
            load_calibration(folder, manifest),
        )

    def holds(self, component: Key[Any, Any]) -> bool:
        """Whether the version has a component."""
        return self.view.holds(component)

    def __getitem__(self, component: Key[Any, R]) -> R:
        """A component's reader."""
        return self.view[component]

    def with_reader(self, component: Key[Any, R], reader: R) -> "Index":
        """The same index with another reader of a component."""
        readers = {**self.view.readers, component.name: reader}
        return replace(self, view=replace(self.view, readers=readers))

    def info(self) -> Mapping[str, Any]:
        """The components' entries in `/info`."""
        return info_of(self.view)

    def parts(self) -> list[str]:
        """Components besides vectors and documents, as `/info` names them."""
        return parts_of(self.view)

    def explain(self, retriever: str, words: Sequence[str], hit: Explained) -> Mapping[str, Any]:
        """The components' entries in the explanation of a retriever's hit, for the words of a query."""
        return explain_hit(self.view, retriever, words, hit)

    @property
    def version(self) -> str:
        """The version's name."""
        return self.manifest.name

    @property
    def preprocessor(self) -> Preprocessor:
        """The preprocessor with the index's own term statistics."""
        return self.models.preprocessor

    @property
    def encoder(self) -> Encoder:
        """The query encoder."""
        return self.models.encoder

    @property
    def explainer(self) -> Explainer | None:
        """Explains hits; None in a version without explain graphs."""
        return self.models.explainer

    @property
    def reranker(self) -> Reranker | None:
        """Re-ranks hits; None in a version without one."""
        return self.models.reranker

    @property
    def analyzer(self) -> Analyzer:
        """Analyzer of its lexical index; without one, words are terms."""
        return self[POSTINGS].analyzer if self.holds(POSTINGS) else PLAIN

    @property
    def model(self) -> str:
        """Name and short hash of the model that built it: `glow-mini@sha256:ab12cd34`."""
        name = model_parent(self.manifest).get("name", "unknown")
        return f"{name}@sha256:{self.manifest.hashes.get('model', '')[:8]}"


def _check_counts(manifest: Manifest, view: View, remedy: str) -> None:
    """Checks that the components' counts are those of the manifest."""
    for name, count in counts_of(view).items():
        expected = manifest.counts.get(name, count)
        if count != expected:
            raise MismatchError(
                f"index {manifest.name}: {count} {name}, {expected} {name} in the manifest; {remedy}"
            )


def _speller(models: Models, view: View) -> Speller | None:
    tables = view.get(SPELLING)
    if tables is None or models.preprocessor.weighting.unit != "word":
        return None
    preprocessor = models.preprocessor
    return Speller(preprocessor.pieces, preprocessor.terms, list(tables), view.get(POSTINGS))
