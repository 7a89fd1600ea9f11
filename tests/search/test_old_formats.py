"""Indexes of every format that was ever written: they open and answer as they did, or are refused with what to run."""

import json
import re
from pathlib import Path

import pytest

from glow.artifact.manifest import FORMAT_VERSION
from glow.errors import FormatError
from glow.index import Index
from glow.index.vectors import SearchParams
from glow_service.search.calls import SearchCall
from glow_service.search.session import SearchSession

FOLDERS = sorted((Path(__file__).parents[1] / "data").glob("index-format-*"))


def test_an_index_of_each_format_up_to_this_one_is_kept() -> None:
    kept = [int(folder.name.rpartition("-")[2]) for folder in FOLDERS]
    assert kept == list(range(1, FORMAT_VERSION + 1))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_it_opens_and_answers_as_it_did_or_says_what_to_run(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_bytes())
    try:
        index = Index.open(folder / expected["version"])
    except FormatError as error:
        assert int(folder.name.rpartition("-")[2]) < FORMAT_VERSION  # this GLOW's own format must open
        assert re.search(r"build it again|index_builder", str(error))
        return
    for answer in expected["answers"]:
        call = SearchCall(answer["query"], 5, 0, 20, SearchParams(), answer["retriever"])
        hits = SearchSession(index, call).run().found.hits
        assert [hit.id for hit in hits] == answer["ids"], answer
        # Another processor sums in another order.
        assert [hit.score for hit in hits] == pytest.approx(answer["scores"], abs=2e-3), answer
