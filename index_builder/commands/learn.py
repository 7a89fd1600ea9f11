"""`glow learn-clicks`: learns from clicks."""

from itertools import chain
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow.errors import ConfigError, InputError
from glow.feedback import read_feedback
from glow.index import MODEL_FOLDER, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.query_log import SkippedLines, read_query_log
from glow.schema import FieldSchema
from glow_index_builder.clicks import (
    FIELD,
    ClickLimits,
    LearnLimits,
    Propensities,
    count_at_ranks,
    join,
    learn,
    measure_propensities,
    write_documents,
    write_training,
)

__all__ = ["LearnOptions", "learn_command"]

DOCUMENTS_FILE, TRAINING_FOLDER = "documents.jsonl", "train"
_CLICKS, _LIMITS = ClickLimits(), LearnLimits()


class LearnOptions(JsonOptions, IndexRootOptions):
    """Which logs to learn from, and what is enough."""

    query_log: tuple[Path, ...] = option(..., "Query log of the service; repeatable.", metavar="FILE")
    feedback_log: tuple[Path, ...] = option(..., "Feedback log of the service; repeatable.", metavar="FILE")
    out: Path = option(..., "Directory to write.", metavar="DIR")
    least_users: int = option(
        _LIMITS.least_users,
        "Fewest users who clicked a document for a query, within one salt period.",
        ge=1,
        flag="--min-users",
    )
    least_rate: float = option(
        _LIMITS.least_rate,
        "Lowest click-through rate among users who examined the document.",
        ge=0.0,
        le=1.0,
        flag="--min-ctr",
    )
    least_share: float = option(
        _LIMITS.least_share,
        "Lowest click-through rate relative to the query's best document.",
        ge=0.0,
        le=1.0,
        flag="--min-relative-ctr",
    )
    most_clicks: int = option(
        _CLICKS.most_a_day,
        "Most clicks of a user per day; above it, the user counts as a bot.",
        ge=1,
        flag="--max-clicks-per-day",
    )
    most_clicks_in_all: int = option(
        _CLICKS.most,
        "Most clicks of a user per salt period; above it, the user counts as a bot.",
        ge=1,
        flag="--max-clicks-total",
    )
    least_dwell_s: float = option(
        _CLICKS.least_dwell_s,
        "Shortest dwell time in seconds; shorter clicks do not count.",
        flag="--min-dwell-s",
        ge=0.0,
    )
    most_rank: int = option(10, "Deepest rank that counts.", ge=2, le=100, flag="--max-rank")
    dev_share: float = option(0.1, "Fraction of the queries in the split dev.", ge=0.0, le=0.9)
    seed: int = option(0, "Seed of the split.", ge=0)


@command(LearnOptions)
def learn_command(options: LearnOptions) -> None:
    """Learns from clicks: clicked queries for documents, and training pairs."""
    root = IndexRoot(options.index_root)
    folder = root.folder(root.current())
    specs = {spec.name: spec for spec in FieldSchema.load(folder / MODEL_FOLDER / "schema.json").fields}
    if FIELD not in specs:
        raise ConfigError(f"the model of {folder.name} reads no field {FIELD!r}; it reads {', '.join(specs)}")
    limits = ClickLimits(options.most_clicks, options.most_clicks_in_all, options.least_dwell_s)
    skipped = SkippedLines()
    queries = chain.from_iterable(read_query_log(path, skipped) for path in options.query_log)
    feedback = chain.from_iterable(read_feedback(path, skipped) for path in options.feedback_log)
    joined = join(queries, feedback, limits)
    if skipped.count:
        say(str(skipped))
    if not joined.counts["clicks"]:
        raise InputError(
            f"no click matches a logged search ({joined.counts['unknown']} unmatched); "
            "use logs of the same service and period, or raise query_log_sample_rate"
        )
    counts = count_at_ranks(joined.searches, options.most_rank)
    propensities = measure_propensities(counts, options.most_rank)
    learned = learn(
        joined.searches,
        counts,
        propensities,
        LearnLimits(options.least_users, options.least_rate, options.least_share),
    )
    documents = list(Index.open(folder, threads=1)[STORED_FIELDS].scan())
    changed, new = write_documents(
        options.out / DOCUMENTS_FILE, documents, learned.pairs, specs[FIELD].max_values or len(learned.pairs)
    )
    training = write_training(
        options.out / TRAINING_FOLDER, documents, learned, options.dev_share, options.seed
    )
    report: dict[str, Any] = {
        "status": "learned",
        "version": folder.name,
        "searches": len(joined.searches),
        "skipped_lines": skipped.count,
        "feedback": joined.counts,
        "sources_taken_for_programs": joined.programs,
        "propensities": _shown(propensities),
        "pairs": len(learned.pairs),
        "documents": {"changed": changed, "new_queries": new},
        "training": training,
    }
    write_report(options.json_file, report)
    say(_summary(report, options.out))


def _shown(propensities: Propensities) -> list[dict[str, float]]:
    pairs = zip(propensities.values.tolist(), propensities.clicks.tolist(), strict=True)
    return [
        {"rank": rank, "value": round(value, 4), "clicks": clicks}
        for rank, (value, clicks) in enumerate(pairs, 1)
    ]


def _summary(report: dict[str, Any], out: Path) -> str:
    feedback, training = report["feedback"], report["training"]
    looked = ", ".join(f"{each['value']:.2f}" for each in report["propensities"][:5])
    return "\n".join(
        (
            f"{feedback['clicks']} clicks in {report['searches']} searches count; {feedback['short']} were too short, "
            f"{feedback['programs']} from {report['sources_taken_for_programs']} bots, {feedback['unknown']} unmatched",
            f"ranks 1 to 5 are examined {looked} times as often as the first",
            f"{report['documents']['changed']} documents with {report['documents']['new_queries']} new clicked queries: "
            f"{out / DOCUMENTS_FILE}, for glow upsert",
            f"{training['pairs']} pairs of {training['queries']} queries, {training['negatives']} hard negatives: "
            f"{out / TRAINING_FOLDER}, for glow train",
        )
    )
