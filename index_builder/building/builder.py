"""One build from start to end: input to a verified version in the index root, published or not."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.artifact import EXPLAIN_FILES, QUERY_SIDE_FILES, ArtifactWriter, IndexRoot, write_artifact
from glow.errors import BuildError, GlowError
from glow.runtime import Model
from glow.search import (
    DENSE_FILE,
    DOCUMENTS_FILE,
    MODEL_FOLDER,
    REPORT_FILE,
    Index,
    IndexKind,
    choose_kind,
    require_buildable,
    require_device,
    set_threads,
)
from glow.text import TermTable
from glow_index_builder.building.prepared import Corpus
from glow_index_builder.building.report import (
    build_report,
    describe_explain,
    describe_index,
    stage_seconds,
    write_json,
)
from glow_index_builder.building.steps import Steps
from glow_index_builder.building.work import RESUME_HINT, Step, WorkFolder, open_work
from glow_index_builder.building.work_key import work_key
from glow_index_builder.encoding import batch_tokens, describe_passages, open_cutter, require_runner
from glow_index_builder.input import REJECTS_FILE, Source, open_sources
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions import publish_gated

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
    report: dict[str, Any]
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
    require_runner(options)
    sources = open_sources(options.source)
    model = Model.open(options.model_folder)
    options.check_rename(model.preprocessor.schema.names)
    set_threads(options.thread_count)
    root = IndexRoot(options.output)
    version = root.new_version()
    made = _Build(options, model, stages)
    with _told(options, stages) as told:
        key = work_key(options, sources, model)
        with open_work(root.path, key, resume=options.resume) as told.work:
            report = made.run(told.work, sources, root, version)
            with stages.stage("check"):
                rejects_file = _check(root, version)
                verdict = publish_gated(root, version, gate, publish=options.publish)
    if verdict is not None:
        report["gate"] = verdict
    report |= {"published": options.publish, "seconds": stage_seconds(stages.seconds)}
    return BuildResult(version, root.folder(version), report, rejects_file)


class _Build:
    """A build of one model under one set of options.

    What can be refused is refused here: a device that is not there must not show after hours of reading.
    """

    def __init__(self, options: BuildOptions, model: Model, stages: Stages) -> None:
        self._options = options
        self._model = model
        self._stages = stages
        self._cutter = open_cutter(options, model.preprocessor)
        # Opened to see that it can be, and closed again: it would lie in memory while others need it.
        device = options.device
        self._dimensions = model.encoder("document", device, 1, batch_tokens(device)).dimensions

    def run(self, work: WorkFolder, sources: list[Source], root: IndexRoot, version: str) -> dict[str, Any]:
        """Does every step that is not done, and makes the version of what they left; returns the report."""
        keep_rejects = root.path / f"rejects-{version}.jsonl"
        steps = Steps(self._options, self._model, work, self._stages, keep_rejects)
        corpus = steps.read(sources, self._cutter)
        kind = self._kind(corpus.vectors)
        terms = steps.terms(corpus)
        encoded, vectors = steps.encode(corpus, self._dimensions)
        corpus = steps.without(corpus, encoded.poison, self._cutter)
        columns = steps.columns(corpus)
        lexical = steps.lexical(corpus, terms.table)
        index = steps.index(vectors, kind)
        recall = steps.recall(index, vectors, corpus, terms.table)
        report = build_report(
            version,
            self._options,
            self._model,
            corpus.stats,
            corpus.rejects,
            terms.table,
            encoded,
            self._stages,
        )
        size_bytes = (index.folder / DENSE_FILE).stat().st_size
        report["index"] = describe_index(kind, self._options, corpus.vectors, self._dimensions, size_bytes)
        report["recall"] = recall
        report["columns"] = columns.values["columns"]
        report["lexical"] = lexical.values["lexical"] if lexical else None
        if corpus.passages:
            report["passages"] = describe_passages(corpus.passages, self._stages.seconds)
        parts = [part for part in (terms.step, corpus.cut, columns, lexical, index) if part]
        with write_artifact(root.folder(version), "index") as writer:
            self._assemble(writer, corpus, parts)
            report["explain"] = describe_explain(writer.folder)
            write_json(writer.folder / REPORT_FILE, report)
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

    def _copied(self) -> tuple[str, ...]:
        """Files of the model that the version holds."""
        can_explain = all(name in self._model.manifest.files for name in EXPLAIN_FILES)
        return (*QUERY_SIDE_FILES, *(EXPLAIN_FILES if self._options.explain and can_explain else ()))

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
        writer.parameters = {**self._options.parameters(), "kind": kind}
        writer.counts = {
            "documents": corpus.store.count,
            "rejects": sum(corpus.rejects.values()),
            "dimensions": self._dimensions,
        }
        if corpus.passages:
            writer.counts["passages"] = len(corpus.passages)


def _check(root: IndexRoot, version: str) -> Path | None:
    """Opens the finished version as a service would; one that cannot be opened is removed."""
    folder = root.folder(version)
    try:
        Index.open(folder)
    except BaseException as error:
        shutil.rmtree(folder)
        if not isinstance(error, GlowError):
            raise
        raise BuildError(f"the new version cannot be opened and was removed: {error}") from error
    rejects = folder / REJECTS_FILE
    return rejects if rejects.is_file() else None


class _Told:
    """What the message of a failure needs to know."""

    work: WorkFolder | None = None


@contextmanager
def _told(options: BuildOptions, stages: Stages) -> Iterator[_Told]:
    """Makes errors of the disk errors of the build, and says where the same command can go on."""
    told = _Told()

    def more() -> str:
        return f"; {RESUME_HINT}" if told.work and told.work.is_kept else ""

    try:
        yield told
    except KeyboardInterrupt:
        if told.work and told.work.is_kept:
            stages.note(RESUME_HINT)
        raise
    except OSError as error:
        raise BuildError(_disk_message(options.output, error.strerror or str(error)) + more()) from error
    except sqlite3.Error as error:
        raise BuildError(_disk_message(options.output, str(error)) + more()) from error
    except BuildError as error:
        if told.work and told.work.is_kept:
            raise BuildError(f"{error}{more()}") from error.__cause__
        raise


def _disk_message(output: Path, reason: str) -> str:
    return f"cannot write the index below {output}: {reason}; the live index is unchanged"
