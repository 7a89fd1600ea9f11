"""One build from start to end: input to a verified version in the index root, published or not."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from glow.artifact import (
    EXPLAIN_FILES,
    RERANKER_FOLDER,
    ArtifactWriter,
    IndexRoot,
    open_reranker,
    query_side_files,
    reranker_files,
)
from glow.errors import BuildError, ConfigError
from glow.index import DENSE_FILE, DOCUMENTS_FILE, MODEL_FOLDER, REPORT_FILE, Index
from glow.index.milvus import connect
from glow.index.token_embeddings import StatesHeader
from glow.index.vectors import IndexKind, choose_kind, require_buildable, require_device, set_threads
from glow.runtime import Model
from glow.text import TermTable, check_analyzer
from glow_index_builder.building.prepared import Corpus
from glow_index_builder.building.report import (
    BuildReport,
    describe_explain,
    describe_index,
    stage_seconds,
    write_json,
)
from glow_index_builder.building.steps import Steps
from glow_index_builder.building.work import RESUME_HINT, Step, WorkFolder, open_work
from glow_index_builder.building.work_key import key_of
from glow_index_builder.encoding import (
    batch_tokens,
    describe_passages,
    open_cutter,
    require_learned,
    require_runner,
    states_header,
)
from glow_index_builder.input import REJECTS_FILE, Source, open_sources
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions import VersionWriter, disk_errors, publish_gated

__all__ = ["BuildResult", "build"]


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build made.

    Attributes:
        version: its name.
        folder: where it lies.
        report: the build report.
        rejects_file: the rejected lines, if there are any.
    """

    version: str
    folder: Path
    report: BuildReport
    rejects_file: Path | None


def build(options: BuildOptions, stages: Stages) -> BuildResult:
    """Builds one index version.

    Nothing is visible before the version is whole and has been opened once; when anything fails, the versions and the
    live one are as they were. What is done stays in the work folder where the same command may go on with it.

    Args:
        options: what to build.
        stages: progress and times.

    Raises:
        InputError: if the input or an option cannot be used.
        ArtifactError: if the model cannot be used.
        DeviceError: if the device is not there.
        DependencyError: if the input's format, or the runner, needs a package that is not installed.
        BusyError: if the same build runs already.
        BuildError: if there are too many rejects or no document, or the disk is full.
        GateError: if the version is there and was not published.
    """
    gate = options.gate_options()
    require_device(options.index, options.device)
    if options.store:
        connect(options.store)  # to hear now of a server that is not there
    require_runner(options)
    sources = open_sources(options.source)
    model = Model.open(options.model_folder)
    options.check_rename(model.preprocessor.schema.names)
    set_threads(options.thread_count)
    root = IndexRoot(options.output)
    target = VersionWriter(root)
    building = _Build(options, model, stages)
    folders: list[WorkFolder] = []
    with _resumable(options, stages, folders):
        key = key_of(options, sources, model, building.states, building.learned)
        with open_work(root.path, key, resume=options.resume) as work:
            folders.append(work)
            report = building.run(work, sources, target)
            with stages.stage("check"):
                target.open(Index.open)
                verdict = publish_gated(root, target.version, gate, publish=options.publish)
    rejects = target.folder / REJECTS_FILE
    finished = replace(report, gate=verdict, published=options.publish, seconds=stage_seconds(stages.seconds))
    return BuildResult(target.version, target.folder, finished, rejects if rejects.is_file() else None)


class _Build:
    """A build of one model under one set of options.

    What can be refused is refused here: a device that is not there must not show after hours of reading.
    """

    def __init__(self, options: BuildOptions, model: Model, stages: Stages) -> None:
        self._options = options
        self._model = model
        self._stages = stages
        if options.lexical:
            check_analyzer(options.analyzer, model.preprocessor.weighting.unit)
        self._cutter = open_cutter(options, model.preprocessor)
        self.states: StatesHeader | None = None
        if options.rerank is not None:
            self._reranker, digest = open_reranker(options.rerank)
            self.states = states_header(options.rerank, digest, options.rerank_bits)
        self.learned = require_learned(model) if options.learned else None
        if options.learned and not options.lexical:
            raise ConfigError("--learned counts beside BM25: leave --no-lexical out")
        # Opened to see that it can be, and closed again: it would lie in memory while others need it.
        device = options.device
        self._dimensions = model.encoder("document", device, 1, batch_tokens(device)).dimensions

    def run(self, work: WorkFolder, sources: list[Source], target: VersionWriter) -> BuildReport:
        """Does every step that is not done, and makes the version of what they left; returns the report."""
        keep_rejects = target.root.path / f"rejects-{target.version}.jsonl"
        steps = Steps(self._options, self._model, work, self._stages, keep_rejects, self.states)
        corpus = steps.read(sources, self._cutter)
        kind = self._kind(corpus.vectors)
        terms = steps.terms(corpus)
        words = steps.learned_words(corpus, terms.table)
        encoded, vectors = steps.encode(corpus, self._dimensions)
        states = steps.states(encoded)
        corpus = steps.without(corpus, encoded.poison, self._cutter)
        columns = steps.columns(corpus)
        lexical = steps.lexical(corpus, terms.table)
        learned = steps.learned(encoded, corpus)
        index = steps.index(vectors, kind, corpus, columns, terms.table)
        recall = steps.recall(index, vectors, corpus, terms.table)
        size_bytes = 0 if self._options.store else (index.folder / DENSE_FILE).stat().st_size
        report = BuildReport(
            version=target.version,
            options=self._options,
            model=self._model,
            corpus=corpus.stats,
            rejects=corpus.rejects,
            terms=terms.table,
            encoded=encoded,
            index=describe_index(kind, self._options, corpus.vectors, self._dimensions, size_bytes),
            recall=recall,
            columns=columns.values["columns"],
            lexical=lexical.values["lexical"] if lexical else None,
            rerank=states.values["rerank"] if states else None,
            learned=learned.values["learned"] if learned else None,
            passages=describe_passages(corpus.passages, self._stages.seconds) if corpus.passages else None,
            peaks=dict(self._stages.peaks),
            seconds=stage_seconds(self._stages.seconds),
            build_seconds=sum(self._stages.seconds.values()),
        )
        made = (terms.step, corpus.cut, columns, lexical, words, learned, index, states)
        parts = [part for part in made if part]
        with target.write() as writer:
            self._assemble(writer, corpus, parts)
            report = replace(report, explain=describe_explain(writer.folder))
            write_json(writer.folder / REPORT_FILE, report.values())
            self._describe(writer, corpus, terms.table, kind)
        return report

    def _kind(self, count: int) -> IndexKind:
        options = self._options
        kind: IndexKind
        if options.index == "auto":
            kind = choose_kind(count, self._dimensions, options.memory_mb << 20, options.device)
        else:
            kind = options.index
        require_buildable(kind, count)
        return kind

    def _assemble(self, writer: ArtifactWriter, corpus: Corpus, parts: list[Step]) -> None:
        """Puts the files of all steps into the version's folder, and the model's."""
        writer.known.update(corpus.step.link(writer.folder, DOCUMENTS_FILE, REJECTS_FILE))
        for part in parts:
            writer.known.update(part.link(writer.folder))
        target = writer.folder / MODEL_FOLDER
        target.mkdir()
        for name in self._copied():
            shutil.copyfile(self._model.folder / name, target / name)
        if self._options.rerank is not None:
            copied = writer.folder / RERANKER_FOLDER
            copied.mkdir()
            for name in reranker_files(self._reranker.files):
                shutil.copyfile(self._options.rerank / name, copied / name)

    def _copied(self) -> tuple[str, ...]:
        """Files of the model that the version holds."""
        can_explain = all(name in self._model.manifest.files for name in EXPLAIN_FILES)
        return (
            *query_side_files(self._model.manifest.files),
            *(EXPLAIN_FILES if self._options.explain and can_explain else ()),
        )

    def _describe(self, writer: ArtifactWriter, corpus: Corpus, terms: TermTable, kind: IndexKind) -> None:
        files = self._model.manifest.files
        writer.hashes = {"model": self._model.hash, "terms": terms.hash}
        writer.parents = {
            "model": {
                "name": self._model.manifest.name,
                "hash": self._model.hash,
                "files": {name: files[name].sha256 for name in self._copied()},
            }
        }
        if self.states is not None:
            writer.hashes["reranker"] = self.states.model
            writer.parents["reranker"] = {"name": self._reranker.name, "hash": self.states.model}
        if self.learned is not None:
            writer.hashes["learned"] = self.learned
        writer.parameters = {**self._options.parameters(), "kind": kind}
        writer.counts = {
            "documents": corpus.store.count,
            "rejects": sum(corpus.rejects.values()),
            "dimensions": self._dimensions,
        }
        if corpus.passages:
            writer.counts["passages"] = len(corpus.passages)


@contextmanager
def _resumable(options: BuildOptions, stages: Stages, folders: list[WorkFolder]) -> Iterator[None]:
    """Says of a failure that the same command can go on, where a work folder is kept.

    Args:
        options, stages: of the build.
        folders: gets the work folder once it is open.
    """

    def hint() -> str:
        return RESUME_HINT if any(folder.is_kept for folder in folders) else ""

    try:
        with disk_errors(options.output):
            yield
    except KeyboardInterrupt:
        if hint():
            stages.note(hint())
        raise
    except BuildError as error:
        if hint():
            raise BuildError(f"{error}; {hint()}") from error.__cause__
        raise
