"""A component in a kind of index, and how its index is made, changed and merged."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, TERMS_TOWER, FileKey, learned_hash
from glow.index import (
    COMPONENTS,
    DELTA,
    BuildInputs,
    Component,
    EncodeJob,
    MergeSource,
    Records,
    Rows,
    Rules,
    Segment,
    Texts,
    View,
    existing_rules,
    joined_order,
    merge_segments,
    open_segment,
    requested_rules,
    view_of,
)
from glow.index.columns import COLUMNS
from glow.index.passages import PASSAGES, TextsOfDocuments
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS, DocumentWriter
from glow.index.vectors import VectorRules
from glow.records import Document
from glow.runtime import VECTOR, Encoder, Model
from glow.text import Analyzer, CorpusCounter, LexicalFields, TermTable, field_words, select_terms
from glow_index_builder.options import BuildOptions
from tests.components.kinds import NEW, OLD, document_of
from tests.components.probes import PROBES, Seen

AnyComponent = Component[Any, Any]


@dataclass
class _Encoded:
    """What is made of texts, as an `Encoded`; made when it is asked for."""

    texts: list[Document]
    encode: Callable[[Document], tuple[NDArray[np.float32], dict[str, Records]]]
    dimensions: int

    def records(self, component: str) -> Iterator[Records]:
        for text in self.texts:
            yield self.encode(text)[1][component]

    def vectors(self) -> NDArray[np.float32]:
        nothing = np.empty((0, self.dimensions), np.float32)
        return np.concatenate([nothing, *(self.encode(text)[0] for text in self.texts)])


@dataclass
class _Corpus:
    """Documents of which components are built; a `Corpus`."""

    model: Model
    terms: TermTable
    counted: TermTable
    counted_terms: TermTable
    vocabulary: TermTable
    made: Segment
    encoded: Any = None
    threads: int = 1
    spread: None = None

    @property
    def notes(self) -> Path:
        return self.made.folder.parent / "notes"

    def documents(self) -> Iterator[Document]:
        return self.made[STORED_FIELDS].scan()

    def advance(self, count: int) -> None:
        assert count >= 0

    def open(self, component: AnyComponent) -> None:
        reader = component.open(self.made)
        if reader is not None:
            self.made = self.made.with_reader(component, reader, component.first(reader))


@dataclass
class Segments:
    """Makes segments of one model and one kind of index, in folders of their own."""

    model: Model  # that encodes
    options: Mapping[str, Any]  # of the build
    new_folder: Callable[[], Path]  # a folder that is not there yet
    _done: dict[Any, Any] = field(default_factory=dict)

    def base(self, held: Sequence[Document], **changed: Any) -> Segment:
        """Documents as a build makes them; options may be changed."""
        folder = self.new_folder()
        options = BuildOptions(source="-", index_root=folder, **{**self.options, **changed})
        dimensions = self.model.encoder("document").dimensions
        rules = requested_rules(options, BuildInputs(self.model, dimensions, "cpu", 1, "corpus", {}))
        counted, stems, vocabulary = self._counted(held)
        terms = select_terms("corpus", counted, self.model.preprocessor.terms)
        hashes = {"model": self.model.hash, "terms": terms.hash}
        for each in rules.values():
            hashes |= each.hashes
        vectors = rules["vectors"]
        assert isinstance(vectors, VectorRules)
        parameters = {**options.parameters(), "kind": vectors.kind(len(held))}
        made = Segment("made", folder, folder, "", hashes, parameters, None, Rows(len(held)))
        terms.save(folder.with_name(f"{folder.name}-terms"))
        folder.mkdir(parents=True)
        corpus = _Corpus(self.model, terms, counted, stems, vocabulary, made)
        return self._write(held, rules, corpus)

    def delta(self, base: Segment, held: Sequence[Document]) -> Segment:
        """As an upsert makes it; of no documents, as a deletion does."""
        folder = self.new_folder()
        made = replace(base, folder=folder, below=DELTA, files=None, rows=Rows(len(held)), readers={})
        return self._added(made, held, existing_rules(base, delta=True))

    def rebuilt(self, base: Segment, held: Sequence[Document]) -> Segment:
        """A whole index of documents that are encoded and counted by the rules of a base."""
        rules, own, folder = (
            existing_rules(base, delta=True),
            existing_rules(base, delta=False),
            self.new_folder(),
        )
        rules["vectors"] = own["vectors"]  # they do not decide what is searched
        folder.mkdir(parents=True)
        for name in (name for component in COMPONENTS for name in component.stays):
            if (base.root / name).is_dir():
                shutil.copytree(base.root / name, folder / name)
            elif (base.root / name).is_file():
                shutil.copyfile(base.root / name, folder / name)
        shutil.copytree(*(root.with_name(f"{root.name}-terms") for root in (base.root, folder)))
        made = replace(base, folder=folder, root=folder, files=None, rows=Rows(len(held)), readers={})
        return self._added(made, held, rules)

    def assert_alike(self, one: Any, other: Any) -> None:
        assert one == other

    def joined(self, base: Segment, delta: Segment, gone: NDArray[np.int64]) -> View:
        ids = [document.id for document in delta[STORED_FIELDS].scan()]
        order = joined_order(base[COLUMNS].order, base[STORED_FIELDS], ids)
        return view_of([base, delta], gone, order)

    def merged(self, kept: Sequence[MergeSource], *, delta: bool) -> Segment:
        oldest, folder = kept[0].segment, self.new_folder()
        folder.mkdir(parents=True)
        rows = Rows(sum(each.documents for each in kept))
        made = replace(oldest, folder=folder, files=None, rows=rows, readers={})
        if not delta:
            made = replace(made, root=folder)
        merge_segments(kept, made, delta=delta)
        return made

    def _added(self, made: Segment, held: Sequence[Document], rules: Mapping[str, Rules]) -> Segment:
        """Without documents, of a model that is not there."""
        terms = TermTable.load(made.root.with_name(f"{made.root.name}-terms"))
        model = self.model if held else replace(self.model, folder=made.folder / "nowhere")
        return self._write(held, rules, _Corpus(model, terms, *self._counted(held), made))

    def _counted(self, held: Sequence[Document]) -> tuple[TermTable, TermTable, TermTable]:
        own, counter = self.model.preprocessor, CorpusCounter(Analyzer("english"), 10_000)
        for document in held:
            weak = LexicalFields(weak=True).weak_words(document, own.schema, own.pieces)
            counter.add(field_words(document, own.schema, own.pieces), weak=weak)
        return counter.tables()

    def _write(self, held: Sequence[Document], rules: Mapping[str, Rules], corpus: _Corpus) -> Segment:
        folder = corpus.made.folder
        folder.mkdir(parents=True, exist_ok=True)
        with DocumentWriter(folder / DOCUMENTS_FILE) as writer:
            for document in held:
                writer.add(document)
        corpus.open(STORED_FIELDS)
        listed = [component for component in COMPONENTS if component.name in rules]
        for component in listed:
            if component.prepares:
                component.prepare(corpus, rules[component.name])
                if corpus.made.has_any(component.paths):
                    corpus.open(component)
        jobs = {each.name: each.encoding(corpus.made, rules[each.name]) for each in listed}
        corpus.encoded = self._encoded(corpus, {name: job for name, job in jobs.items() if job is not None})
        for component in listed:
            component.build(corpus, rules[component.name])
            corpus.open(component)
        return open_segment(verified(corpus.made))

    def _encoded(self, corpus: _Corpus, jobs: Mapping[str, EncodeJob]) -> _Encoded:
        whole = TextsOfDocuments(corpus.made.get(PASSAGES))
        texts = [text for row, each in enumerate(corpus.documents()) for text in whole.of(each, row)]
        dimensions = self.model.encoder("document").dimensions
        if not texts:
            return _Encoded(texts, lambda text: ({}, {}), dimensions)
        graph = DOCUMENT_TOWER if learned_hash(self.model.manifest.files) is None else TERMS_TOWER
        tower = Encoder(self.model.folder / graph, self.model.preprocessor.pieces.pad_id)
        beside = [name for name in tower.outputs if name != VECTOR]
        preprocessor = self.model.with_terms(corpus.terms)
        encoders = {name: job.open(self.model, corpus.terms, "cpu") for name, job in jobs.items()}

        def encode(text: Document) -> Any:
            key = (repr(text), corpus.terms.hash, tuple(jobs.items()))
            if key not in self._done:
                sequences = [preprocessor.document(text)]
                vectors, *found = tower.run_outputs(sequences, [VECTOR, *beside])
                batch = Texts([text], sequences, vectors, dict(zip(beside, found, strict=True)))
                self._done[key] = batch.vectors, {name: each.encode(batch) for name, each in encoders.items()}
            return self._done[key]

        return _Encoded(texts, encode, dimensions)


def verified(segment: Segment) -> Segment:
    """A segment with its files in a manifest, none of it open."""
    paths = (path for path in sorted(segment.folder.rglob("*")) if path.is_file())
    files = {path.relative_to(segment.folder).as_posix(): (FileKey.of(path), "") for path in paths}
    return replace(segment, files=files, readers={}, rows=Rows(segment.rows.documents))


def files_of(folder: Path, component: AnyComponent) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in sorted(paths)}
    return {name: path.read_bytes() for name, path in names.items() if name.startswith(component.paths)}


def all_of(segment: Segment) -> MergeSource:
    return MergeSource(segment, np.ones(segment.rows.documents, np.bool_))


@dataclass(frozen=True)
class Changed:
    """An index that was changed."""

    base: Segment  # base, delta: its segments
    delta: Segment
    gone: NDArray[np.int64]  # rows of the base that are gone
    left: list[Document]  # the documents that can be found, in the order of rows

    @property
    def kept(self) -> list[MergeSource]:
        live = np.ones(self.base.rows.documents, np.bool_)
        live[self.gone] = False
        return [MergeSource(self.base, live), all_of(self.delta)]


@dataclass
class Case:
    """A component in a kind of index."""

    component: AnyComponent
    segments: Segments  # makes segments of the kind
    shared: dict[str, Any]  # what tests of the same kind have made

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]

    def answers(self, view: View) -> Any:
        return PROBES[self.component.name](Seen.of(view))

    def changed(self) -> Changed:
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
        """Base and delta answer as one index of what is left."""
        lost = [each for row, each in enumerate(changed.base[STORED_FIELDS].scan()) if row in changed.gone]
        joined = self.segments.joined(changed.base, changed.delta, changed.gone)
        self.compare(joined, changed.base, lost, changed.left)

    def compare(self, joined: View, base: Segment, lost: list[Document], left: list[Document]) -> None:
        """Segments answer as one index of what is left; what is of the whole index counts what is lost until it is compacted."""
        held = left
        if self.component.per == "index":
            held = [replace(each, id=f"x/{each.id}") for each in lost] + left
        key = f"rebuilt of {base.folder}" + "".join(map(repr, held))
        rebuilt = self.once(key, lambda: self.segments.rebuilt(base, held))
        assert joined.holds(self.component)
        self.segments.assert_alike(self.answers(joined), self.answers(view_of([rebuilt])))


def needs_of(component: AnyComponent) -> set[str]:
    names = set(component.needs)
    for other in COMPONENTS:
        if other.name in component.needs:
            names |= needs_of(other)
    return names
