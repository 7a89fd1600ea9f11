"""The steps of a build after reading; each uses the files of the earlier steps in the work directory.

Documents that cannot be encoded are known only after encoding, so components are built after it, without them.
This module names no component except the vectors, whose recall it measures and whose rows it may move into Milvus.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from glow.errors import ArtifactError, BuildError
from glow.index import (
    COMPONENTS,
    TERMS_FOLDER,
    AnyComponent,
    Encoded,
    ImportRows,
    RangeTask,
    Rows,
    Rules,
    Segment,
)
from glow.index.milvus import store_segment
from glow.index.passages import cuts_of
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS
from glow.index.vectors import VECTORS, VectorRules, index_bytes
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.text import TermTable, select_terms
from glow_index_builder.building.documents import CorpusStats
from glow_index_builder.building.recall import measure_recall
from glow_index_builder.building.work import Advance, StagedWork
from glow_index_builder.encoding import (
    MAX_KILLS,
    Block,
    BlockEncoder,
    EncodedBlocks,
    RayImport,
    Run,
    batch_tokens,
    encode_block,
    encode_blocks,
    encode_jobs,
    in_child,
    in_ray,
    in_threads,
    open_encoder,
    plan_blocks,
)
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages


@dataclass(slots=True, eq=False)
class MadeCorpus:
    """Documents and the components that are built so far."""

    model: Model  # as `Corpus` says
    terms: TermTable
    counted: TermTable
    counted_terms: TermTable
    made: Segment
    notes: Path
    threads: int
    spread: Callable[[RangeTask], ImportRows] | None = None
    encoded: Encoded = field(init=False)  # as `Corpus` says; available once the texts are encoded
    _advance: Advance = field(init=False, default=lambda count: None)

    def documents(self) -> Iterator[Document]:
        """As `Corpus`."""
        return self.made[STORED_FIELDS].scan()

    def advance(self, count: int) -> None:
        """As `Corpus`."""
        self._advance(count)

    def write_to(self, folder: Path, earlier: tuple[Path, ...], advance: Advance) -> None:
        """Sets the directory that the next component writes into."""
        self.made = replace(self.made, folder=folder, earlier=earlier)
        self._advance = advance

    def open(self, component: AnyComponent, folders: tuple[Path, ...]) -> None:
        """Opens a finished component."""
        self.made = replace(self.made, folder=folders[0], earlier=folders[1:])
        try:
            reader = component.open(self.made)
        except ArtifactError as error:
            raise BuildError(f"the {component.label} that were built cannot be opened: {error}") from error
        if reader is not None:
            self.made = self.made.with_reader(component, reader, component.first(reader))


BLOCKS_FOLDER, NOTES_FOLDER = "shards", "import"
MANY_DOCUMENTS = 100_000
"""From so many on, a build tells the time and memory to expect."""
SAMPLE_DOCUMENTS = 64
BUILD_BYTES = 225 << 20
"""Memory of a build besides its vectors (docs/scale.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps that a build applies to its documents."""

    _options: CommonOptions
    _model: Model
    _staged: StagedWork
    _rules: Mapping[str, Rules]  # name of each component to build -> its rules
    _version: str

    def terms(self, stats: CorpusStats) -> TermTable:
        """The index's term statistics, read from their files as a service reads them."""
        with self._staged.step("terms") as (step, _):
            if not step.is_done:
                own = self._model.preprocessor.terms
                table = select_terms(self._options.term_stats, stats.terms, own)
                table.save(step.folder / TERMS_FOLDER)
        return TermTable.load(step.folder / TERMS_FOLDER)

    def corpus(self, stats: CorpusStats, terms: TermTable) -> MadeCorpus:
        """The documents that were read, without any component yet."""
        staged, options = self._staged, self._options
        path, folders = staged.work.path, staged.folders
        hashes = {"model": self._model.hash, "terms": terms.hash}
        for rules in self._rules.values():
            hashes |= rules.hashes
        made = Segment(
            name=self._version,
            folder=folders[0],
            root=path,
            below="",
            hashes=hashes,
            parameters=options.parameters(),
            files=None,
            rows=Rows(stats.documents),
            earlier=folders[1:],
        )
        corpus = MadeCorpus(
            model=self._model,
            terms=terms,
            counted=stats.terms,
            counted_terms=stats.stems,
            made=made,
            notes=path / NOTES_FOLDER,
            threads=options.thread_count,
            spread=(lambda task: RayImport(task, options.workers, options.ray_address))
            if options.runner == "ray"
            else None,
        )
        corpus.open(STORED_FIELDS, folders)
        return corpus

    def prepare(self, corpus: MadeCorpus, *, again: bool = False) -> None:
        """Prepares the components for encoding."""
        for component in self._components():
            # Files outside of the component's paths do not depend on documents.
            if not component.prepares or (again and not corpus.made.has_any(component.paths)):
                continue
            name = f"poison-{component.prepares}" if again else component.prepares
            total = corpus.made.rows.documents
            with self._staged.step(name, total, "documents", component.prepares) as (step, advance):
                if not step.is_done:
                    corpus.write_to(step.folder, self._staged.folders, advance)
                    component.prepare(corpus, self._rules[component.name])
            corpus.open(component, self._staged.folders)
        if not again:
            for component in self._components():
                component.check_rows(corpus.made.rows, self._rules[component.name])

    def encode(self, corpus: MadeCorpus, dimensions: int) -> EncodedBlocks:
        """Encodes the documents in blocks."""
        options, made, staged = self._options, corpus.made, self._staged
        folder, cuts = staged.work.path / BLOCKS_FOLDER, cuts_of(made)
        folder.mkdir(exist_ok=True)
        job = BlockEncoder(
            model=options.model_folder.resolve(),
            store=made.path(DOCUMENTS_FILE).resolve(),
            terms=made.path(TERMS_FOLDER).resolve(),
            cuts=None if cuts is None else cuts.resolve(),
            folder=folder.resolve(),
            device=options.device,
            threads=max(1, options.thread_count // options.workers),
            jobs=encode_jobs(made, self._rules),
        )
        count = made.rows.documents
        plan = plan_blocks(count, options.shard_documents)
        with staged.work.counting_kills("encode") as kills:
            if count > MANY_DOCUMENTS and not kills:
                self._forecast(job, made.rows)
            with staged.stages.stage("encode", count, "documents") as advance:
                encoding = start_encoding(options, job, kills)
                return encode_blocks(encoding, plan, folder, dimensions, advance, job.jobs)

    def _forecast(self, job: BlockEncoder, rows: Rows) -> None:
        """Tells what encoding and indexing will take, by the rate of the first documents on one thread."""
        block = encode_block(job, Block(0, min(SAMPLE_DOCUMENTS, rows.documents)))
        open_encoder.cache_clear()
        texts, vectors = rows.count("vector"), self._rules[VECTORS.name]
        if block.rows and isinstance(vectors, VectorRules):
            hours = block.seconds / block.rows * texts / job.threads / self._options.workers / 3600
            size = BUILD_BYTES + index_bytes(vectors.kind(texts), texts, vectors.dimensions)
            self._staged.stages.note(
                f"{texts:,} texts to encode: about {hours:.1f} hours at the rate of the first {block.rows:,}, and "
                f"{size / 2**20:,.0f} MiB of memory"
            )

    def build(self, corpus: MadeCorpus) -> None:
        """Builds every component in turn; those that reading or preparing made already are only opened."""
        staged = self._staged
        for component in self._components():
            if not corpus.made.has_any(component.paths):
                per = component.per
                total = None if per == "index" else corpus.made.rows.count(per)
                unit = "vectors" if per == "vector" else "documents"
                with staged.step(component.stage, total, unit) as (step, advance):
                    if not step.is_done:
                        corpus.write_to(step.folder, staged.folders, advance)
                        component.build(corpus, self._rules[component.name])
            corpus.open(component, staged.folders)

    def recall(self, corpus: MadeCorpus) -> dict[str, Any]:
        """Recall of the index to be served, which is opened from its files."""
        options = self._options
        with self._staged.step("recall") as (step, _):
            if not step.is_done:
                encoder: Encoder = self._model.encoder(
                    "query", options.device, options.thread_count, batch_tokens(options.device)
                )
                preprocessor, made = self._model.with_terms(corpus.terms), corpus.made
                vectors = corpus.encoded.vectors()
                recall = measure_recall(made[VECTORS], vectors, made[STORED_FIELDS], preprocessor, encoder)
                step.values = {"recall": asdict(recall), "dimensions": made[VECTORS].dimensions}
        values: dict[str, Any] = step.values["recall"]
        return values

    def _components(self) -> Iterator[AnyComponent]:
        return (component for component in COMPONENTS if component.name in self._rules)


def start_encoding(options: CommonOptions, job: BlockEncoder, kills: int) -> AbstractContextManager[Run]:
    """The way in which a build encodes, not started yet."""
    if options.runner == "ray":
        return in_ray(job, options.workers, options.ray_address)
    return in_threads(job) if kills < MAX_KILLS else in_child(job)


def store_rows(folder: Path, made: Segment, rules: Mapping[str, Rules], notes: Path, stages: Stages) -> None:
    """Moves the rows, if the rules of vectors name a server."""
    vectors = rules[VECTORS.name]
    if not isinstance(vectors, VectorRules) or vectors.store is None:
        return
    with stages.stage("store", made.rows.documents, "documents") as advance:
        store_segment(made, folder, vectors.store, notes, advance)
