"""What tests of writes share: made documents."""

from pathlib import Path

import pytest

from tests.made_index import documents, write


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents())
