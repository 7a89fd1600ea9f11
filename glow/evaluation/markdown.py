"""Formats comparisons and failure analyses as Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from glow.evaluation.comparison import Analysis, Change, Comparison, Found, Test

__all__ = ["analysis_markdown", "comparison_markdown", "mark", "markdown_table"]

LEVELS = (0.05, 0.01)
_TESTS: Mapping[Test, str] = {"randomisation": "randomisation test", "t": "t-test"}


def mark(item: Comparison, test: Test) -> str:
    """▲ for better and ▼ for worse at the corrected level .05, twice at .01; empty if it may be chance."""
    corrected = item.by_test(test)[1]
    sign = "▲" if item.difference > 0 else "▼"
    return sign * sum(corrected <= level for level in LEVELS)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is left-aligned, figures are right-aligned."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in (head, rule, *rows))


def comparison_markdown(baseline: str, systems: Mapping[str, Mapping[str, Comparison]], test: Test) -> str:
    """Two tables and a note: systems x measures with marks, and each difference with its interval and p-values.

    Args:
        baseline: name of the baseline.
        systems: name -> measure name -> comparison with the baseline; at least one.
        test: the test that decides the marks.
    """
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


def _figures(item: Comparison) -> tuple[str, ...]:
    p_values = (item.p_value, item.p_holm, item.t_p_value, item.t_p_holm)
    interval = f"{item.low:+.4f} to {item.high:+.4f}"
    return (f"{item.difference:+.4f}", interval, *("< .0001" if p < 1e-4 else f"{p:.4f}" for p in p_values))


def analysis_markdown(analysis: Analysis, baseline: str, system: str, place: str) -> str:
    """A failure analysis as a page: the totals, then the queries won, then those lost.

    Args:
        analysis: the analysis.
        baseline, system: names of the two runs.
        place: data directory and split.
    """
    counts = analysis.counts
    head = (
        f"# {system} against {baseline} on {place}\n\n"
        f"{analysis.measure}: {analysis.baseline:.4f} → {analysis.system:.4f} "
        f"({analysis.system - analysis.baseline:+.4f}); queries: {counts['won']} won, "
        f"{counts['lost']} lost, {counts['alike']} alike.\n"
    )
    parts = [head]
    for title, changes, count in (
        ("Won", analysis.won, counts["won"]),
        ("Lost", analysis.lost, counts["lost"]),
    ):
        parts.append(f"## {title}: {len(changes)} of {count}\n")
        parts += ["".join(_change(change, baseline, system)) for change in changes]
    return "\n".join(parts)


def _change(change: Change, baseline: str, system: str) -> Iterator[str]:
    yield f"### {_line(change.text)}\n\n"
    difference = change.system - change.baseline
    yield f"`{change.query_id}`: {change.baseline:.4f} → {change.system:.4f} ({difference:+.4f})\n\n"
    for item in change.relevant:
        ranks = f"rank {item.baseline_rank or '-'} → {item.system_rank or '-'}"
        yield f"- relevant (grade {item.grade}): {_document(item)}, {ranks}\n"
    for name, items in ((baseline, change.baseline_first), (system, change.system_first)):
        for rank, item in enumerate(items, start=1):
            judged = "" if item.grade is None else f" (grade {item.grade})"
            yield f"- {_line(name)} {rank}: {_document(item)}{judged}\n"
        if not items:
            yield f"- {_line(name)}: nothing\n"


def _document(item: Found) -> str:
    return f"{_line(item.title or 'not in the corpus')} `{item.id}`"


def _line(text: str) -> str:
    """Untrusted text as one plain line, without effect of its markup."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
