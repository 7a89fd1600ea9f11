"""Schemas: what is refused, all faults at once, and the same bytes for the same options."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import ConfigError
from glow.schema import PRESETS, FieldSchema, FieldSpec


def content(**changes: object) -> str:
    base = {
        "name": "s",
        "query_tokens": 20,
        "document_tokens": 60,
        "fields": [{"name": "title", "tokens": 30}],
    }
    return json.dumps(base | changes)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_survive_a_file_unchanged(name: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    FieldSchema.preset(name).save(path)
    loaded, first = FieldSchema.load(path), path.read_bytes()
    assert loaded == FieldSchema.preset(name) and loaded.name == name
    assert loaded.hash == FieldSchema.preset(name).hash
    loaded.save(path)
    assert path.read_bytes() == first


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'glow-papr'; known: bison-msmarco, glow-default"):
        FieldSchema.preset("glow-papr")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fields": []}, "fields"),
        ({"fields": [{"name": "a", "tokens": 5}] * 2}, "names must differ"),
        ({"fields": [{"name": "query", "tokens": 5}]}, "named query"),
        ({"fields": [{"name": "_id", "tokens": 5}]}, "named _id"),
        ({"fields": [{"name": "", "tokens": 5}]}, "name"),
        ({"fields": [{"name": "a", "tokens": 1}]}, "tokens"),
        ({"fields": [{"name": "a", "tokens": 5, "kind": "html"}]}, "kind"),
        ({"fields": [{"name": "a", "tokens": 5, "weight": -1}]}, "weight"),
        ({"fields": [{"name": "a", "tokens": 5, "length_norm": 1.5}]}, "length_norm"),
        ({"fields": [{"name": "a", "tokens": 5, "max_values": 0}]}, "max_values"),
        (
            {"fields": [{"name": n, "tokens": 5} for n in "abcd"], "document_tokens": 5},
            "too small for 4 fields",
        ),
        ({"query_tokens": 2}, "query_tokens"),
        ({"budget": 3}, "budget"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_fault(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(content(**changes))
    with pytest.raises(ConfigError, match=reason):
        FieldSchema.load(path)


def test_all_faults_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(content(query_tokens=0, document_tokens="many", extra=1))
    with pytest.raises(ConfigError) as caught:
        FieldSchema.load(path)
    assert all(part in str(caught.value) for part in ("query_tokens", "document_tokens", "'many'", "extra"))


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"[]", b"NaN", b"[" * 50_000], ids=ascii)
def test_an_unreadable_file_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"schema\.json"):
        FieldSchema.load(path)


@given(st.integers(2, 100), st.floats(0, 1e6), st.floats(0, 1))
def test_the_hash_changes_with_any_option(tokens: int, weight: float, length_norm: float) -> None:
    spec = FieldSpec(name="title", tokens=tokens, weight=weight, length_norm=length_norm)
    base = FieldSpec(name="title", tokens=30)
    assert (spec.hash == base.hash) == (spec == base)
    assert FieldSpec.model_validate_json(spec.model_dump_json()).hash == spec.hash
