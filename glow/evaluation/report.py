"""Reports of an evaluation as JSON and as tables; `glow.evaluation.markdown` writes Markdown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from glow.evaluation.comparison import Analysis, Comparison, Test, Unseen
from glow.evaluation.measures import Evaluation

__all__ = ["Report", "analysis_json", "comparison_json", "comparison_table", "report_table", "reports_json"]

DIGITS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """The measures of one run over one set of relevance judgments.

    Attributes:
        about: what was measured, the first keys of the JSON (model, data, split, retriever; or run and qrels).
        head: the same as a column heading.
        evaluation: the values.
        options: other settings that decide the figures (rel, depth, term statistics, …).
        unseen: the values of the unseen queries; None if not requested.
    """

    about: Mapping[str, str | None]
    head: str
    evaluation: Evaluation
    options: Mapping[str, Any]
    unseen: Unseen | None = None

    def as_json(self, *, per_query: bool) -> dict[str, Any]:
        """The report as JSON values (docs/evaluation.md), optionally with each query's values."""
        body = {**self.about, **_means(self.evaluation), "options": dict(self.options)}
        if self.unseen is not None:
            body["unseen"] = {"split": self.unseen.split, **_means(self.unseen.evaluation)}
        if per_query:
            body["per_query"] = self.evaluation.per_query
            if self.unseen is not None:
                body["unseen"]["ids"] = list(self.unseen.evaluation.queries)
        return body

    @property
    def columns(self) -> list[tuple[str, Evaluation]]:
        """Headings and values of the report's table columns."""
        columns = [(self.head, self.evaluation)]
        if self.unseen is not None:
            columns.append((f"{self.head}\nunseen in {self.unseen.split}", self.unseen.evaluation))
        return columns


def _means(evaluation: Evaluation) -> dict[str, Any]:
    measures = {name: round(mean, DIGITS) for name, mean in evaluation.means.items()}
    return {"queries": len(evaluation.queries), "measures": measures}


def reports_json(reports: Sequence[Report], *, per_query: bool) -> str:
    """Indented JSON: one object for one report, a list for several."""
    bodies = [report.as_json(per_query=per_query) for report in reports]
    return _dump(bodies[0] if len(bodies) == 1 else bodies)


def report_table(reports: Sequence[Report]) -> Table:
    """Reports as a table with a row for each measure and a column for each report, which fits any terminal."""
    columns = [column for report in reports for column in report.columns]
    names = list(dict.fromkeys(name for _, evaluation in columns for name in evaluation.values))
    table = Table()
    for head in ("measure", *(head for head, _ in columns)):
        # Text, because a file's name may look like markup to rich; folded, so that no figure is cut.
        table.add_column(Text(head), overflow="fold")
    table.add_row("queries", *(str(len(evaluation.queries)) for _, evaluation in columns))
    means = [evaluation.means for _, evaluation in columns]
    for name in names:
        table.add_row(name, *(f"{values[name]:.4f}" if name in values else "-" for values in means))
    return table


def comparison_json(systems: Mapping[str, Mapping[str, Comparison]]) -> str:
    """Indented JSON: measure name -> comparison for one system; for several, system -> such an object."""
    bodies = {
        label: {name: asdict(item) for name, item in comparisons.items()}
        for label, comparisons in systems.items()
    }
    return _dump(next(iter(bodies.values())) if len(bodies) == 1 else bodies)


def comparison_table(label: str, comparisons: Mapping[str, Comparison], baseline: str, test: Test) -> Table:
    """A table that compares one system with the baseline, with a row for each measure.

    Args:
        label: the system, B.
        comparisons: measure name -> comparison.
        baseline: name of the baseline, A.
        test: `randomisation` or `t`; its p-values are shown, plain and corrected.
    """
    queries = max(item.queries for item in comparisons.values())
    table = Table(
        *("measure", "A", "B", "B - A", "95 % interval", "p", "Holm"),
        title=Text(f"A {baseline}, B {label}, {queries} queries, {test} test"),
    )
    for name, item in comparisons.items():
        p, corrected = item.by_test(test)
        means = (f"{item.mean_a:.4f}", f"{item.mean_b:.4f}", f"{item.difference:+.4f}")
        interval = f"{item.low:+.4f} to {item.high:+.4f}"
        table.add_row(name, *means, interval, f"{p:.4f}", f"{corrected:.4f}")
    return table


def analysis_json(analysis: Analysis, options: Mapping[str, Any]) -> str:
    """A failure analysis as indented JSON, with its inputs."""
    return _dump({**options, **asdict(analysis)})


def _dump(body: Any) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
