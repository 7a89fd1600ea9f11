"""The words of an index on disk."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from glow.index.postings import Vocabulary


@given(words=st.sets(st.text(min_size=1, max_size=80)), other=st.text(max_size=80))
def test_every_word_is_found_at_its_row_and_no_other(
    words: set[str], other: str, tmp_path_factory: "object"
) -> None:
    folder: Path = tmp_path_factory.mktemp("words")  # type: ignore[attr-defined]
    ranked = sorted(words, key=lambda word: word.encode("utf-8", "replace"))
    Vocabulary.save(folder, ranked)
    vocabulary = Vocabulary.load(folder)
    assert len(vocabulary) == len(ranked)
    assert [vocabulary.row(word) for word in ranked] == list(range(len(ranked)))
    assert [vocabulary.word(row) for row in range(len(ranked))] == ranked
    assert (vocabulary.row(other) >= 0) == (other in words)
