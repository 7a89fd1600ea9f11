"""One build from start to end: input to a verified version in the index root, published or not."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from glow.artifact import CALIBRATION_FILE, EXPLAIN_FILES, ArtifactWriter, IndexRoot, query_side_files
from glow.errors import BuildError
from glow.index import (
    COMPONENTS,
    MODEL_FOLDER,
    REPORT_FILE,
    Asked,
    Index,
    Rules,
    Segment,
    asked_rules,
    counts_of,
    view_of,
)
from glow.index.passages import PassagesOptions
from glow.index.postings import POSTINGS, PostingsRules
from glow.index.stored_fields import DOCUMENTS_FILE
from glow.index.vectors import set_threads
from glow.runtime import Model
from glow.text import Analyzer
from glow_index_builder.building.documents import READ, Documents, leave_out, read_documents
from glow_index_builder.building.report import BuildReport, describe_explain, stage_seconds, write_json
from glow_index_builder.building.steps import NOTES_FOLDER, Steps, store_rows
from glow_index_builder.building.work import RESUME_HINT, StagedWork, WorkFolder, key_of, open_work
from glow_index_builder.encoding import batch_tokens
from glow_index_builder.input import REJECTS_FILE, Source, open_sources
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions import VersionWriter, disk_errors, publish_gated


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build."""

    version: str
    folder: Path
    report: BuildReport  # the build report
    rejects_file: Path | None  # the rejected lines, if there are any


def build(options: CommonOptions, stages: Stages) -> BuildResult:
    """Builds one index version.

    The version becomes visible only when it is complete and was opened once. A failed build changes no version and
    not the live one. Finished steps stay in the work directory if the same command can resume them.
    """
    gate = options.gate_options()
    options.check_runner()
    sources = open_sources(options.source)
    model = Model.open(options.model_folder)
    options.check_rename(model.preprocessor.schema.names)
    set_threads(options.thread_count)
    root = IndexRoot(options.index_root)
    target = VersionWriter(root)
    building = _Build(options, model, stages)
    folders: list[WorkFolder] = []
    with _resumable(options, stages, folders):
        key = key_of(options, sources, model, building.rules)
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

    It refuses bad options at once: a missing device must not show after hours of reading.
    """

    def __init__(self, options: CommonOptions, model: Model, stages: Stages) -> None:
        self._options = options
        self._model = model
        self._stages = stages
        # Opened as a check and closed again, to free its memory for the other steps.
        device, threads = options.device, options.thread_count
        self._dimensions = model.encoder("document", device, 1, batch_tokens(device)).dimensions
        self._asked = Asked(model, self._dimensions, device, threads, options.term_stats, {})
        # name of each component to build -> its rules
        self.rules: Mapping[str, Rules] = asked_rules(options, self._asked)

    def run(self, work: WorkFolder, sources: list[Source], target: VersionWriter) -> BuildReport:
        """Does the unfinished steps, makes the version from their files and returns the report."""
        options, stages = self._options, self._stages
        keep_rejects = target.root.path / f"rejects-{target.version}.jsonl"
        staged = StagedWork(work, stages)
        documents = read_documents(staged, sources, self._model, options, self._analyzer(), keep_rejects)
        passages = PassagesOptions.model_validate(options, from_attributes=True)
        is_cut = passages.is_cut(documents.stats.long)
        # Recorded as if the choice had been an option.
        options = self._options = options.model_copy(update={"passages": is_cut})
        self.rules = asked_rules(options, self._asked)
        steps = Steps(options, self._model, staged, self.rules, target.version)
        terms = steps.terms(documents.stats)
        corpus = steps.corpus(documents.stats, terms)
        steps.prepare(corpus)
        encoded = steps.encode(corpus, self._dimensions)
        if encoded.poison:
            documents = leave_out(staged, encoded.poison, options, keep_rejects)
            corpus = steps.corpus(documents.stats, terms)
            steps.prepare(corpus, again=True)
        corpus.encoded = encoded
        steps.build(corpus)
        recall = steps.recall(corpus)
        report = BuildReport(
            version=target.version,
            options=options,
            model=self._model,
            corpus=documents.stats,
            rejects=documents.rejects,
            terms=terms,
            encoded=encoded,
            recall=recall,
            components=self._said(corpus.made),
            peaks=dict(stages.peaks),
            seconds=stage_seconds(stages.seconds),
            build_seconds=sum(stages.seconds.values()),
        )
        with target.write() as writer:
            self._assemble(writer, staged)
            report = replace(report, explain=describe_explain(writer.folder))
            write_json(writer.folder / REPORT_FILE, report.values())
            self._describe(writer, documents, corpus.made)
            store_rows(writer.folder, corpus.made, self.rules, work.path / NOTES_FOLDER, stages)
        return report

    def _analyzer(self) -> Analyzer:
        """The analyzer that counts terms during reading, from the one component that needs it."""
        rules = self.rules.get(POSTINGS.name)
        return Analyzer(rules.analyzer if isinstance(rules, PostingsRules) else "plain")

    def _said(self, made: Segment) -> dict[str, Mapping[str, object]]:
        """The components' part of the report."""
        members: dict[str, Mapping[str, object]] = {}
        for component in COMPONENTS:
            if component.name in self.rules:
                members |= component.report(made, self.rules[component.name], self._stages.seconds)
        return members

    def _assemble(self, writer: ArtifactWriter, staged: StagedWork) -> None:
        """Puts the files of all steps and of the model into the version's directory."""
        for name, step in staged.done.items():
            kept = (DOCUMENTS_FILE, REJECTS_FILE) if name == READ else ()
            writer.known.update(step.link(writer.folder, *kept))
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

    def _describe(self, writer: ArtifactWriter, documents: Documents, made: Segment) -> None:
        files = self._model.manifest.files
        writer.hashes = dict(made.hashes)
        writer.parents = {
            "model": {
                "name": self._model.manifest.name,
                "hash": self._model.hash,
                "files": {name: files[name].sha256 for name in self._copied()},
            }
        }
        writer.parameters = dict(made.parameters)
        writer.counts = {"rejects": sum(documents.rejects.values()), **counts_of(view_of([made]))}
        for component in COMPONENTS:
            if component.name in self.rules:
                writer.parents |= self.rules[component.name].parents
                writer.parameters |= component.parameters(made[component])


@contextmanager
def _resumable(options: CommonOptions, stages: Stages, folders: list[WorkFolder]) -> Iterator[None]:
    """Adds to a failure's message that the same command can resume, if a work directory is kept."""

    def hint() -> str:
        return RESUME_HINT if any(folder.is_kept for folder in folders) else ""

    try:
        with disk_errors(options.index_root):
            yield
    except KeyboardInterrupt:
        if hint():
            stages.note(hint())
        raise
    except BuildError as error:
        if hint():
            raise BuildError(f"{error}; {hint()}") from error.__cause__
        raise
