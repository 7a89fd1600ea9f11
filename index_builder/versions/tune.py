"""Fits a fusion, the re-ranker's weight or that of learned impacts to judged queries, and adds a version with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import CALIBRATION_FILE, RERANK_WEIGHT_FILE, IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, option
from glow.errors import BusyError, ConfigError, MismatchError
from glow.evaluation import Task, find_tasks
from glow.index import FUSION_FILE, Calibrations, Index
from glow.index.learned_sparse import LEARNED_WEIGHT_FILE
from glow.index.postings import POSTINGS
from glow.options import StrictModel
from glow.search import DEFAULT_CANDIDATES, MAX_DEPTH, Reranking, gather_hybrid
from glow_index_builder.versions.calibrating import calibrate
from glow_index_builder.versions.judged import DEPTH, JudgedQuery, judged_queries
from glow_index_builder.versions.tune_learned import TunedWeight, tune_learned
from glow_index_builder.versions.tune_share import TunedShare, tune_share
from glow_index_builder.versions.tuning import Candidates, Tuned, tune
from glow_index_builder.versions.writer import derive

__all__ = ["TuneOptions", "TuneResult", "candidates_of", "tune_index"]


class TuneOptions(JsonOptions, IndexRootOptions):
    """What to tune, and with which queries."""

    version: str | None = option(
        None, "Version name; default: the live one.", is_argument=True, metavar="[VERSION]"
    )
    data: Path = option(..., "Data directory with queries.jsonl and qrels/SPLIT.tsv.", metavar="DIR")
    split: str = option(..., "Split of the relevance judgments, qrels/SPLIT.tsv.")
    candidates: int = option(
        DEFAULT_CANDIDATES, "Hits of each retriever to fuse; as many as searches gather.", ge=1
    )
    rerank: int = option(
        0,
        "Fit the re-ranker's weight over this many hits, instead of the fusion.",
        ge=0,
        le=MAX_DEPTH,
    )
    learned: bool = option(
        False,
        "Fit the weight of learned impacts relative to BM25, instead of the fusion.",
        flag="--learned-sparse",
    )
    publish: bool = option(True, "Make the new version live.")
    seed: int = option(0, "Random seed.", ge=0)


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The result of tuning.

    Attributes:
        source: the tuned version.
        version: the new version.
        tuned: the fusion, the re-ranker's weight or the weight of learned impacts, and its gain.
        calibrated: whether the version has a calibration of the fusion.
    """

    source: str
    version: str
    tuned: Tuned | TunedShare | TunedWeight
    calibrated: bool = False

    def report(self, *, published: bool) -> dict[str, Any]:
        """The result as JSON values; docs/indexing.md describes every key."""
        return {
            "status": "tuned",
            "version": self.version,
            "tuned_version": self.source,
            "published": published,
            "calibrated": self.calibrated,
            **self.tuned.report(),
        }

    def summary(self, *, published: bool) -> str:
        """The result in a few lines of text."""
        done = "published" if published else "made"
        return f"{self.tuned.summary()}\n{done} {self.version} from {self.source}"


def tune_index(options: TuneOptions) -> TuneResult:
    """Fits the fusion of a version and stores it in a new version with otherwise the same files.

    Raises:
        ArtifactError: if the version is missing, damaged, or holds no lexical index.
        InputError: if queries or relevance judgments cannot be read or used.
        BusyError: if another version was published meanwhile, or the root is being changed.
        BuildError: if the disk is full or cannot be written.
    """
    root = IndexRoot(options.index_root)
    source = options.version or root.current()
    index = Index.open(root.folder(source))
    task = find_tasks(options.data, [options.split])[0]
    tuned: Tuned | TunedShare | TunedWeight
    calibrations = None
    if options.rerank and options.learned:
        raise ConfigError("--rerank and --learned-sparse are fitted one after the other; give one of them")
    if options.learned:
        tuned = tune_learned(index, task, options.seed)
        setting, told = "learned_tuning", tuned.weight.model_dump()
    elif options.rerank:
        tuned = tune_share(index, task, Reranking(options.rerank), options.seed)
        setting, told = "rerank_tuning", tuned.rerank_weight.model_dump()
    else:
        tuned, calibrations = _tune_fusion(index, task, options)
        setting, told = "tuning", {"fusion": tuned.fusion.model_dump()}
    told |= {"data": task.data, "split": task.split, "queries": tuned.queries}
    with root.locked():
        if options.publish and options.version is None and root.current() != source:
            raise BusyError(
                f"{root.current()} was published in place of {source} while it was tuned, and what is in it would be lost; nothing was "
                "changed: tune again"
            )
        version = derive(
            root, source, {}, {setting: told}, lambda folder: _store(folder, tuned, calibrations)
        )
        if options.publish:
            root.publish(version)
    return TuneResult(source, version, tuned, calibrations is not None)


def _tune_fusion(index: Index, task: Task, options: TuneOptions) -> tuple[Tuned, Calibrations | None]:
    if not index.holds(POSTINGS):
        raise MismatchError(
            f"version {index.version} holds no lexical index to fuse with; build it with --lexical"
        )
    if options.candidates < DEPTH:
        raise ConfigError(f"--candidates must be at least {DEPTH}, found {options.candidates}")
    queries = [candidates_of(index, query, options.candidates) for query in judged_queries(index, task)]
    tuned = tune(queries, index.order, options.seed)
    return tuned, calibrate(queries, tuned.fusion, index.order)


def candidates_of(index: Index, query: JudgedQuery, k: int) -> Candidates:
    """The candidates that a hybrid search of one query fuses, gathered as a service does.

    Args:
        index: an index with a lexical retriever.
        query: the encoded query.
        k: hits of each retriever.
    """
    _, gathered = gather_hybrid(index, query.asked, k)
    union = np.union1d(gathered.dense[1], gathered.lexical[1])
    return Candidates(
        dense=gathered.dense,
        lexical=gathered.lexical,
        rows=union,
        dense_scores=gathered.score_dense(union) if gathered.score_dense else None,
        lexical_scores=gathered.score_lexical(union),
        late_scores=gathered.score_late(union, lambda: False) if gathered.score_late else None,
        covered=gathered.score_covered(union) if gathered.score_covered else None,
        lexical_scale=gathered.lexical_scale,
        grades=query.grades,
        ideal=query.ideal,
    )


def _store(folder: Path, tuned: Tuned | TunedShare | TunedWeight, calibrations: Calibrations | None) -> None:
    setting: StrictModel
    if calibrations is not None:
        (folder / CALIBRATION_FILE).unlink(missing_ok=True)
        calibrations.save(folder / CALIBRATION_FILE)
    if isinstance(tuned, Tuned):
        setting, name = tuned.fusion, FUSION_FILE
    elif isinstance(tuned, TunedShare):
        setting, name = tuned.rerank_weight, RERANK_WEIGHT_FILE
    else:
        setting, name = tuned.weight, LEARNED_WEIGHT_FILE
    (folder / name).unlink(missing_ok=True)  # a hard link to the older version's file, which must not change
    setting.save(folder / name)
