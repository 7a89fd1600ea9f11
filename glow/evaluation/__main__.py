"""`python -m glow.evaluation`: the evaluation commands under their old names."""

from glow.commands import package_app
from glow.evaluation.commands import compare, run, runs

app = package_app(
    {
        "run": run.run_command,
        "measure": runs.measure_command,
        "fuse": runs.fuse_command,
        "compare": compare.compare_command,
        "failures": compare.failures_command,
    },
    "Measure retrieval quality over BEIR folders and TREC run files, fuse runs, and compare them.",
)

if __name__ == "__main__":
    app()
