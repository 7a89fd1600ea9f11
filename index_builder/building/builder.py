"""One build from start to end: input to a verified version in the index root, published or not.

Each step uses the files of the earlier ones in the work directory. Documents that cannot be encoded are known only after
encoding, so components are built after it, without them.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from glow.artifact import (
    CALIBRATION_FILE,
    EXPLAIN_FILES,
    ArtifactWriter,
    IndexRoot,
    query_side_files,
    verify,
)
from glow.errors import GlowError
from glow.index import (
    COMPONENTS,
    MODEL_FOLDER,
    REPORT_FILE,
    TERMS_FOLDER,
    AnyComponent,
    BuildInputs,
    Index,
    Rows,
    Rules,
    Segment,
    counts_of,
    requested_rules,
    view_of,
)
from glow.index.milvus import STORE_FILE
from glow.index.passages import PASSAGES, PassagesOptions, cuts_of
from glow.index.postings import POSTINGS, PostingsRules
from glow.index.stored_fields import DOCUMENTS_FILE, STORED_FIELDS
from glow.index.vectors import VECTORS, VectorRules, index_bytes, set_threads
from glow.runtime import Model
from glow.text import TermTable, select_terms
from glow_index_builder.building.documents import (
    READ,
    CorpusStats,
    MadeCorpus,
    leave_out,
    read_documents,
    store_rows,
)
from glow_index_builder.building.report import build_report, describe_explain, measure_recall, write_json
from glow_index_builder.building.work import WorkFolder, key_of, open_work
from glow_index_builder.encoding.blocks import (
    Block,
    BlockEncoder,
    EncodedBlocks,
    encode_block,
    open_encoder,
    plan_blocks,
)
from glow_index_builder.encoding.schedule import RayImport, encode_blocks, start_encoding
from glow_index_builder.encoding.text_encoder import batch_tokens, encode_jobs
from glow_index_builder.input.lines import REJECTS_FILE
from glow_index_builder.input.source import Source, guess_types, open_sources
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.gate import judge, parse_gate
from glow_index_builder.versions.writer import VersionWriter

BLOCKS_FOLDER, NOTES_FOLDER = "shards", "import"
MANY_DOCUMENTS = 100_000
"""From so many on, a build tells the time and memory to expect."""
SAMPLE_DOCUMENTS = 64
BUILD_BYTES = 225 << 20
"""Memory of a build besides its vectors (docs/scale.md)."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build."""

    version: str
    report: dict[str, Any]  # as `report.json`, and with the publication
    rejects_file: Path | None  # the rejected lines, if there are any


def build(options: CommonOptions, stages: Stages, more: Path | None = None) -> BuildResult:
    """Builds one index version, which becomes visible when it is complete and was opened once.

    Finished steps stay in the work directory if the same command can resume them. `more` has further lines of input.
    """
    gate = parse_gate(options.gate, options, options.thread_count)
    options.check_runner()
    sources = open_sources(options.source, options.exclude, options.base_url, options.text)
    model = Model.open(options.model_folder)
    names = model.preprocessor.schema.names
    options.check_rename(names)
    types = guess_types(sources, options.texts(names), options.field_types, options.max_line_bytes)
    options = options.model_copy(update={"field_types": types})  # recorded as if they had been given
    if more is not None and more.is_file():
        sources.append(Source(more.name, more))
    set_threads(options.thread_count)
    root = IndexRoot(options.index_root)
    target = VersionWriter(root)
    building = _Build(options, model, target)
    key = key_of(options, sources, model, building.rules)
    with open_work(root.path, key, stages, resume=options.resume) as work:
        report = building.run(work, sources)
        with stages.stage("check"):
            target.open(Index.open)
            verdict = None if gate is None else judge(root, target.version, gate, publish=options.publish)
            if gate is None and options.publish:
                root.publish(target.version)
    report |= {"seconds": stages.report, "skipped": sources.skipped, "published": options.publish}
    report |= {} if verdict is None else {"gate": verdict}
    rejects = target.folder / REJECTS_FILE
    return BuildResult(target.version, report, rejects if rejects.is_file() else None)


class _Build:
    """A build of one model; it refuses bad options at once, such as a missing device, and not after hours of reading."""

    def __init__(self, options: CommonOptions, model: Model, target: VersionWriter) -> None:
        self._options = options
        self._model = model
        self._target = target
        # Opened as a check and closed again, to free its memory for the other steps.
        device, threads = options.device, options.thread_count
        self._dimensions = model.encoder("document", device, 1, batch_tokens(device)).dimensions
        self._asked = BuildInputs(model, self._dimensions, device, threads, options.term_stats, {})
        # name of each component to build -> its rules
        self.rules: Mapping[str, Rules] = requested_rules(options, self._asked)

    def run(self, work: WorkFolder, sources: list[Source]) -> dict[str, Any]:
        """Does the unfinished steps, makes the version from their files and returns the report."""
        target, stages = self._target, work.stages
        keep_rejects = target.root.path / f"rejects-{target.version}.jsonl"
        postings = self.rules.get(POSTINGS.name)
        words = postings if isinstance(postings, PostingsRules) else PostingsRules(analyzer="plain")
        documents = read_documents(work, sources, self._model, self._options, words, keep_rejects)
        passages = PassagesOptions.model_validate(self._options, from_attributes=True)
        # Recorded as if the choice had been an option.
        options = self._options.model_copy(update={"passages": passages.is_cut(documents.long)})
        self._options, self.rules = options, requested_rules(options, self._asked)
        terms = self._terms(work, documents)
        corpus = self._corpus(work, documents, terms)
        self._prepare(work, corpus)
        encoded = self._encode(work, corpus)
        if encoded.poison:
            documents = leave_out(work, encoded.poison, options, keep_rejects)
            corpus = self._corpus(work, documents, terms)
            self._prepare(work, corpus, again=True)
        corpus.encoded = encoded
        self._build(work, corpus)
        members: dict[str, Any] = {}
        for component in self._components():
            members |= component.report(corpus.made, self.rules[component.name], stages.seconds)
        members["recall"] = self._recall(work, corpus)
        with target.write() as writer:
            self._assemble(writer, work)
            members["explain"] = describe_explain(writer.folder)
            report = build_report(
                target.version, options, self._model, documents, terms, encoded, members, stages
            )
            write_json(writer.folder / REPORT_FILE, report)
            self._describe(writer, documents, corpus.made)
            store_rows(writer.folder, corpus.made, self.rules, work.path / NOTES_FOLDER, stages)
        return report

    def _components(self) -> Iterator[AnyComponent]:
        return (component for component in COMPONENTS if component.name in self.rules)

    def _terms(self, work: WorkFolder, documents: CorpusStats) -> TermTable:
        """The index's term statistics, read from their files as a service reads them."""
        with work.step("terms") as step:
            if not step.is_done:
                own = self._model.preprocessor.terms
                table = select_terms(self._options.term_stats, documents.terms, own)
                table.save(step.folder / TERMS_FOLDER)
        return TermTable.load(step.folder / TERMS_FOLDER)

    def _corpus(self, work: WorkFolder, documents: CorpusStats, terms: TermTable) -> MadeCorpus:
        """The documents that were read, without any component yet."""
        options, folders = self._options, work.folders
        hashes = {"model": self._model.hash, "terms": terms.hash}
        for rules in self.rules.values():
            hashes |= rules.hashes
        segment = Segment(
            name=self._target.version,
            folder=folders[0],
            root=work.path,
            below="",
            hashes=hashes,
            parameters=options.parameters(),
            files=None,
            rows=Rows(documents.documents),
            earlier=folders[1:],
        )
        corpus = MadeCorpus(
            model=self._model,
            terms=terms,
            counted=documents.terms,
            counted_terms=documents.stems,
            vocabulary=documents.vocabulary,
            made=segment,
            notes=work.path / NOTES_FOLDER,
            threads=options.thread_count,
        )
        if options.runner == "ray":
            corpus.spread = lambda task: RayImport(task, options.workers, options.ray_address)
        corpus.open(STORED_FIELDS, folders)
        return corpus

    def _prepare(self, work: WorkFolder, corpus: MadeCorpus, *, again: bool = False) -> None:
        """Prepares the components for encoding."""
        for component in self._components():
            # Files outside of the component's paths do not depend on documents.
            if not component.prepares or (again and not corpus.made.has_any(component.paths)):
                continue
            name = f"poison-{component.prepares}" if again else component.prepares
            with work.step(name, corpus.made.rows.documents, "documents", component.prepares) as step:
                if not step.is_done:
                    corpus.write_to(step.folder, work.folders, step.advance)
                    component.prepare(corpus, self.rules[component.name])
            corpus.open(component, work.folders)
        if not again:
            for component in self._components():
                component.check_rows(corpus.made.rows, self.rules[component.name])

    def _encode(self, work: WorkFolder, corpus: MadeCorpus) -> EncodedBlocks:
        """Encodes the documents in blocks."""
        options, segment = self._options, corpus.made
        folder, cuts = work.path / BLOCKS_FOLDER, cuts_of(segment)
        folder.mkdir(exist_ok=True)
        jobs = encode_jobs(segment, self.rules)
        job = BlockEncoder(
            model=options.model_folder.resolve(),
            store=segment.path(DOCUMENTS_FILE).resolve(),
            terms=segment.path(TERMS_FOLDER).resolve(),
            cuts=None if cuts is None else cuts.resolve(),
            folder=folder.resolve(),
            device=options.device,
            threads=max(1, options.thread_count // options.workers),
            jobs=jobs,
            known=None if jobs or not options.reuse else self._known(corpus),
        )
        count = segment.rows.documents
        plan = plan_blocks(count, options.shard_documents)
        with work.counting_kills("encode") as kills:
            if count > MANY_DOCUMENTS and not kills:
                self._forecast(job, segment.rows, work.stages)
            with work.stages.stage("encode", count, "documents") as advance:
                encoding = start_encoding(options, job, kills)
                return encode_blocks(encoding, plan, folder, self._dimensions, advance, job.jobs)

    def _known(self, corpus: MadeCorpus) -> Path | None:
        """The live version, if equal fields have equal input of the encoder there, and vectors are not rounded."""
        try:
            live = OpenVersion.open(self._target.root)
            hashes, kind = live.manifest.hashes, live.manifest.parameters.get("kind")
            cuts = [each.get(PASSAGES) for each in (live.base, corpus.made)]
            before, now = (cut and (cut.header.field, cut.header.limit) for cut in cuts)
            weighs = (
                self._model.preprocessor.weighting.reads_terms and hashes.get("terms") != corpus.terms.hash
            )
            if weighs or hashes.get("model") != self._model.hash or before != now or kind == "ivf-pq":
                return None
            if self._options.runner == "ray" or live.base.has(STORE_FILE):
                return None
            verify(live.folder, "index")  # damage must not get into the new version
        except GlowError:
            return None
        return live.folder.resolve()

    def _forecast(self, job: BlockEncoder, rows: Rows, stages: Stages) -> None:
        """Tells what encoding and indexing will take, by the rate of the first documents on one thread."""
        sample = Block(0, min(SAMPLE_DOCUMENTS, rows.documents))
        block = encode_block(replace(job, known=None), sample)
        open_encoder.cache_clear()
        texts, vectors = rows.count("vector"), self.rules[VECTORS.name]
        if block.rows and isinstance(vectors, VectorRules):
            hours = block.seconds / block.rows * texts / job.threads / self._options.workers / 3600
            size = BUILD_BYTES + index_bytes(vectors.kind(texts), texts, vectors.dimensions)
            stages.note(
                f"{texts:,} texts to encode: about {hours:.1f} hours at the rate of the first {block.rows:,}, and "
                f"{size / 2**20:,.0f} MiB of memory"
            )

    def _build(self, work: WorkFolder, corpus: MadeCorpus) -> None:
        """Builds the components in order; one that an earlier step wrote is only opened."""
        for component in self._components():
            if not corpus.made.has_any(component.paths):
                per = component.per
                total = None if per == "index" else corpus.made.rows.count(per)
                unit = "vectors" if per == "vector" else "documents"
                with work.step(component.stage, total, unit) as step:
                    if not step.is_done:
                        corpus.write_to(step.folder, work.folders, step.advance)
                        component.build(corpus, self.rules[component.name])
            corpus.open(component, work.folders)

    def _recall(self, work: WorkFolder, corpus: MadeCorpus) -> dict[str, Any]:
        """Recall of the index to be served, which is opened from its files."""
        options, segment = self._options, corpus.made
        with work.step("recall") as step:
            if not step.is_done:
                tokens = batch_tokens(options.device)
                encoder = self._model.encoder("query", options.device, options.thread_count, tokens)
                preprocessor, vectors = self._model.with_terms(corpus.terms), corpus.encoded.vectors()
                recall = measure_recall(
                    segment[VECTORS], vectors, segment[STORED_FIELDS], preprocessor, encoder
                )
                step.values = {"recall": asdict(recall)}
        values: dict[str, Any] = step.values["recall"]
        return values

    def _assemble(self, writer: ArtifactWriter, work: WorkFolder) -> None:
        """Puts the files of all steps and of the model into the version's directory."""
        for name, step in work.done.items():
            files = (DOCUMENTS_FILE, REJECTS_FILE) if name == READ else ()
            writer.known.update(step.link(writer.folder, *files))
        target = writer.folder / MODEL_FOLDER
        target.mkdir()
        for name in self._copied():
            shutil.copyfile(self._model.folder / name, target / name)

    def _copied(self) -> tuple[str, ...]:
        """The model files that the version holds."""
        files = self._model.manifest.files
        can_explain = all(name in files for name in EXPLAIN_FILES)
        return (
            *query_side_files(files),
            *(EXPLAIN_FILES if self._options.explain and can_explain else ()),
            *((CALIBRATION_FILE,) if CALIBRATION_FILE in files else ()),
        )

    def _describe(self, writer: ArtifactWriter, documents: CorpusStats, segment: Segment) -> None:
        files = self._model.manifest.files
        writer.hashes = dict(segment.hashes)
        writer.parents = {
            "model": {
                "name": self._model.manifest.name,
                "hash": self._model.hash,
                "files": {name: files[name].sha256 for name in self._copied()},
            }
        }
        writer.parameters = dict(segment.parameters)
        writer.counts = {"rejects": sum(documents.rejects.values()), **counts_of(view_of([segment]))}
        for component in self._components():
            writer.parents |= self.rules[component.name].parents
            writer.parameters |= component.parameters(segment[component])
