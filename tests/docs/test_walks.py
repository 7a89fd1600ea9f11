"""Every command that a page of the documentation shows with its output runs, and prints that."""

from pathlib import Path

import pytest

from tests.docs.walk import ROOT, Step, faults_of, steps_of
from tests.ports import free_port

PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if steps_of(page)])
def test_a_page_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    faults = faults_of(PAGES[name], tmp_path, free_port())
    assert not faults, "\n" + "\n".join(faults)


def test_what_a_page_shows_can_be_wrong() -> None:
    assert not Step("x", "a...c\n").fault("abc\n", 0)
    assert Step("x", "a\n").fault("b\n", 0) and Step("x", "a\n").fault("a\n", 1)
    assert Step("x", "glow: no\n").fault("glow: no\n", 0) and not Step("x", "glow: no\n").fault(
        "glow: no\n", 5
    )
    assert steps_of("```console\n$ a\n> b\nc\n$ d\n```\n") == [Step("a\nb", "c\n"), Step("d", "")]
