"""The papers' configurations for MS MARCO documents."""

from pathlib import Path

import pytest

from glow.schema import FieldSchema
from glow.training.towers import TrainConfig

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("name", "fields"), [("bison", ("url", "title")), ("glow", ("url", "title", "text"))]
)
def test_the_papers_configurations_are_valid_and_read_their_fields(
    name: str, fields: tuple[str, ...]
) -> None:
    config = TrainConfig.load_toml(ROOT / "research" / "papers" / f"msmarco-doc-{name}.toml")
    schema = FieldSchema.preset(config.fields)
    assert schema.names == fields
    assert schema.query_tokens == 20
    assert [spec.tokens for spec in schema.fields] == [30, 30, 128][: len(fields)]
    assert (config.objective.kind, config.towers.weight_side) == ("bce", "row")
