"""The example on the page about text runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from glow.schema import PRESETS, FieldSpec
from glow.text import Weighting

ROOT = Path(__file__).parents[2]


def test_the_example_runs() -> None:
    page = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("special")
    assert lines[-1].startswith("special")
    assert {line.split()[0] for line in lines} == {"special", "how", "do", "bees", "find", "home", "?"}


def test_the_page_has_every_option() -> None:
    page = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
    names = [*Weighting.model_fields, *FieldSpec.model_fields, *PRESETS]
    assert not [name for name in names if f"`{name}`" not in page]
