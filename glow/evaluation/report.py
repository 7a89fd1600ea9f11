"""Reports of an evaluation and of a comparison, as JSON, as tables of a terminal and as Markdown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from glow.evaluation.comparison import Comparison, Test, Unseen
from glow.evaluation.measures import Evaluation

DIGITS = 6
LEVELS = (0.05, 0.01)
_TESTS: Mapping[Test, str] = {"randomisation": "randomisation test", "t": "t-test"}


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """The measures of one run over one set of relevance judgments."""

    # what was measured, the first keys of the JSON (model, data, split, retriever)
    about: Mapping[str, str | None]
    head: str  # the same as a column heading
    evaluation: Evaluation
    options: Mapping[str, Any]  # other settings that decide the figures (rel, depth, term statistics, …)
    unseen: Unseen | None = None  # None if not requested

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


def _dump(body: Any) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def comparison_table(label: str, comparisons: Mapping[str, Comparison], baseline: str, test: Test) -> Table:
    """A table that compares one system, B, with the baseline, A; it shows the p-values of `test`."""
    queries = max(item.queries for item in comparisons.values())
    table = Table(
        *("measure", "A", "B", "B - A", "95 % interval", "p", "Holm"),
        title=Text(f"A {baseline}, B {label}, {queries} queries, {test} test"),
    )
    for name, item in comparisons.items():
        p, corrected = item.by_test(test)
        means = (f"{item.mean_a:.4f}", f"{item.mean_b:.4f}", f"{item.difference:+.4f}")
        table.add_row(name, *means, _interval(item), f"{p:.4f}", f"{corrected:.4f}")
    return table


def _interval(item: Comparison) -> str:
    return f"{item.low:+.4f} to {item.high:+.4f}"


def comparison_markdown(baseline: str, systems: Mapping[str, Mapping[str, Comparison]], test: Test) -> str:
    """Two tables and a note: systems x measures with marks, and each difference with its interval and p-values."""
    first = next(iter(systems.values()))
    rows = [[f"{baseline} (baseline)", *(f"{item.mean_a:.4f}" for item in first.values())]]
    details = []
    for label, comparison in systems.items():
        rows.append(
            [label, *(f"{item.mean_b:.4f} {mark(item, test)}".strip() for item in comparison.values())]
        )
        details += [[label, name, *_figures(item)] for name, item in comparison.items()]
    queries = max(item.queries for item in first.values())
    note = (
        f"{queries} queries. ▲ better, ▼ worse than {baseline}: {_TESTS[test]}, two-sided, paired, p ≤ .05 after "
        f"Holm's correction over {len(details)} comparison{'s'[: len(details) > 1]}; ▲▲, ▼▼: p ≤ .01. Intervals: 95 % "
        "percentile bootstrap over queries, one comparison at a time.\n"
    )
    head = ("system", "measure", "difference", "95 % interval", "p randomisation", "Holm", "p t", "Holm")
    tables = [markdown_table(["system", *first], rows), markdown_table(head, details)]
    return "\n".join([*tables, note])


def mark(item: Comparison, test: Test) -> str:
    """▲ for better and ▼ for worse at the corrected level .05, twice at .01; empty if it may be chance."""
    corrected = item.by_test(test)[1]
    sign = "▲" if item.difference > 0 else "▼"
    return sign * sum(corrected <= level for level in LEVELS)


def _figures(item: Comparison) -> tuple[str, ...]:
    p_values = (item.p_value, item.p_holm, item.t_p_value, item.t_p_holm)
    shown = ("< .0001" if p < 1e-4 else f"{p:.4f}" for p in p_values)
    return (f"{item.difference:+.4f}", _interval(item), *shown)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is left-aligned, figures are right-aligned."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in (head, rule, *rows))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
