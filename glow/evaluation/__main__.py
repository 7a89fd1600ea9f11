"""Command line of evaluation: `python -m glow.evaluation {run,measure,fuse,compare,failures}`."""

import typer

from glow.evaluation.commands import (
    compare_command,
    failures_command,
    fuse_command,
    measure_command,
    run_command,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    # Plain tracebacks: a bug's report must not print whole corpora from local variables.
    pretty_exceptions_enable=False,
    help="Measure retrieval quality over BEIR folders and TREC run files, fuse runs, and compare them.",
)
app.command("run")(run_command)
app.command("measure")(measure_command)
app.command("fuse")(fuse_command)
app.command("compare")(compare_command)
app.command("failures")(failures_command)


if __name__ == "__main__":
    app()
