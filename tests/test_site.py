"""The documentation as a site: it builds, and no link between pages, or to a heading, leads nowhere."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    options = "-m sphinx -q -W --keep-going -b html -c docs/site -d".split()
    command = [sys.executable, *options, str(tmp_path / "trees")]
    done = subprocess.run(
        [*command, ".", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for page in (
        "index.html",
        "docs/site/index.html",
        "README.html",
        "docs/improve.html",
        "docs/results/scale.html",
    ):
        assert (tmp_path / "site" / page).is_file()
