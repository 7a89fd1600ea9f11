"""What an evaluation reports: JSON for programs, a table for people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from glow.evaluation.measures import Evaluation
from glow.evaluation.significance import Comparison
from glow.evaluation.task import Task

__all__ = ["Report", "comparison_json", "comparison_table", "report_table", "reports_json"]

DIGITS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One retriever over one task.

    Attributes:
        model: name and short hash of the model; None for the lexical baseline.
        task: corpus and split.
        retriever: dense, lexical or hybrid.
        evaluation: the values.
        options: what else decides the figures (rel, depth, term statistics, …).
    """

    model: str | None
    task: Task
    retriever: str
    evaluation: Evaluation
    options: Mapping[str, Any]

    def as_json(self, *, per_query: bool) -> dict[str, Any]:
        """The report as JSON values (ARCHITECTURE.md section 4), on wish with each query's values."""
        body: dict[str, Any] = {
            "model": self.model,
            "data": self.task.data,
            "split": self.task.split,
            "retriever": self.retriever,
            "queries": len(self.evaluation.queries),
            "measures": {name: round(mean, DIGITS) for name, mean in self.evaluation.means.items()},
            "options": dict(self.options),
        }
        if per_query:
            body["per_query"] = self.evaluation.per_query
        return body


def reports_json(reports: Sequence[Report], *, per_query: bool) -> str:
    """One JSON object for one report, a list for several; indented, with a line end."""
    bodies = [report.as_json(per_query=per_query) for report in reports]
    return json.dumps(bodies[0] if len(bodies) == 1 else bodies, indent=2, ensure_ascii=False) + "\n"


def report_table(reports: Sequence[Report]) -> Table:
    """Reports as a table: a row for each measure, a column for each report, so that figures fit any terminal."""
    names = list(dict.fromkeys(name for report in reports for name in report.evaluation.values))
    heads = [f"{report.task.data} {report.task.split}\n{report.retriever}" for report in reports]
    table = Table("measure", *heads)
    table.add_row("queries", *(str(len(report.evaluation.queries)) for report in reports))
    means = [report.evaluation.means for report in reports]
    for name in names:
        table.add_row(name, *(f"{found[name]:.4f}" for found in means))
    return table


def comparison_json(comparisons: Mapping[str, Comparison]) -> str:
    """Measure name -> comparison, as indented JSON with a line end."""
    return json.dumps({name: asdict(item) for name, item in comparisons.items()}, indent=2) + "\n"


def comparison_table(comparisons: Mapping[str, Comparison]) -> Table:
    """Comparisons as a table, a row for each measure."""
    table = Table("measure", "queries", "A", "B", "B - A", "95 % interval", "p")
    for name, item in comparisons.items():
        means = (f"{item.mean_a:.4f}", f"{item.mean_b:.4f}", f"{item.difference:+.4f}")
        interval = f"{item.low:+.4f} to {item.high:+.4f}"
        table.add_row(name, str(item.queries), *means, interval, f"{item.p_value:.4f}")
    return table
