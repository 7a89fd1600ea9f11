"""Late interaction as a component: when it is made, of what, and what it refuses."""

import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import ConfigError, MismatchError
from glow.index import Asked, BaseAndDelta, MergeSource, Rows, Segment, Segments, Texts
from glow.index.component import Rules
from glow.index.late_interaction import (
    BUDGET,
    LATE_INTERACTION,
    LateHeader,
    LateJob,
    LateTokens,
    encode_tokens,
)
from glow.index.late_interaction.component import LateOptions, LateRules
from glow.records import Document
from glow.runtime import TOKENS, Model
from tests.late_interaction.test_store import HEADER, coded, write
from tests.made_index import documents, made
from tests.made_index import write as write_lines

SIZE = 16
"""P of the toy model."""
LIKE = {"model": "b" * 64, "size": 32, "budget": 13}


def asked(model: Any) -> Asked:
    return Asked(model, 48, "cpu", 1, "corpus", {"postings": Rules()})


def segment_of(folder: Path, header: LateHeader = HEADER, **more: Any) -> Segment:
    """A segment with a store of three rows."""
    write(folder / "late", coded([2, 5, 1], size=header.size), header=header)
    given: dict[str, Any] = {"files": None, "hashes": {"model": header.model}, "parameters": {}} | more
    segment = Segment("v1", folder, folder, "", rows=Rows(3), **given)
    return segment.with_reader(LATE_INTERACTION, LateTokens.open(folder / "late"))


def joined(base: Segment, delta: Segment) -> Any:
    segments = Segments(3, 3, np.empty(0, np.int64))
    stores = base[LATE_INTERACTION], delta[LATE_INTERACTION]
    return LATE_INTERACTION.join(
        BaseAndDelta("v1", *stores, segments, np.empty(0, np.int64), np.arange(6, dtype=np.uint32))
    )


def test_it_is_made_if_the_model_can_and_nobody_left_it_out(toy_model: Path) -> None:
    model = Model.open(toy_model)
    towers = SimpleNamespace(token_size=None)
    able = asked(model)
    unable = asked(SimpleNamespace(label="older", hash="h", encoder=lambda tower: towers))
    for wish in (None, True):
        rules = LATE_INTERACTION.rules(LateOptions(late_interaction=wish), able)
        assert rules is not None
        assert rules.header == LateHeader(model=able.model.hash, size=SIZE, budget=BUDGET, rows=0, tokens=0)
    assert LATE_INTERACTION.rules(LateOptions(late_interaction=False), able) is None
    wordless = replace(able, rules={})  # nothing would compare them
    assert LATE_INTERACTION.rules(LateOptions(late_interaction=None), wordless) is None
    assert LATE_INTERACTION.rules(LateOptions(late_interaction=True), wordless) is not None
    for unsaid in (None, False):
        assert LATE_INTERACTION.rules(LateOptions(late_interaction=unsaid), unable) is None
    with pytest.raises(
        ConfigError,
        match=r"--late-interaction: model older gives no token vectors; export it again \(glow export-model",
    ):
        LATE_INTERACTION.rules(LateOptions(late_interaction=True), unable)


@pytest.mark.parametrize("size", [0, 520])
def test_a_model_of_too_many_numbers_is_refused(size: int) -> None:
    model = SimpleNamespace(label="m", hash="h", encoder=lambda tower: SimpleNamespace(token_size=size))
    with pytest.raises(ConfigError, match=f"tokens of {size} numbers, expected .*--no-late-interaction"):
        LATE_INTERACTION.rules(LateOptions(), asked(model))


def test_words_alone_are_stored_and_padding_never(toy_model: Path) -> None:
    model = Model.open(toy_model)
    titles = {"a": "bees find home", "b": "", "c": "tea"}
    texts = [Document(name, {"title": (title,)}) for name, title in titles.items()]
    sequences = [model.preprocessor.document(each) for each in texts]
    vectors, tokens = model.encoder("document").run_tokens(sequences)
    assert tokens.shape[1] > len(sequences[2]) > len(sequences[1])
    job = pickle.loads(pickle.dumps(LateJob(SIZE, 48)))  # noqa: S301 - made here
    encoder = job.open(model, model.preprocessor.terms, "cpu")
    assert encoder.reads == (TOKENS,)
    records, counts = encoder.encode(Texts(texts, sequences, vectors, {TOKENS: tokens}))
    words = [np.flatnonzero(each.word_ids >= 0) for each in sequences]
    assert records.dtype == job.dtype and counts.tolist() == [len(words[0]), 1, len(words[2])]
    assert records["place"].tolist() == [*words[0].tolist(), 0, *words[2].tolist()]
    expected = [tokens[0, words[0]], tokens[1, :1], tokens[2, words[2]]]
    assert records["code"].tobytes() == np.packbits(np.concatenate(expected) >= 0, axis=1).tobytes()
    few, counts = (
        LateJob(SIZE, 2)
        .open(model, model.preprocessor.terms, "cpu")
        .encode(Texts(texts, sequences, vectors, {TOKENS: tokens}))
    )
    codes, leaders = encode_tokens(expected[0], 2)
    assert counts.tolist() == [2, 1, min(2, len(words[2]))]
    assert few["code"][:2].tobytes() == codes.tobytes()
    assert few["place"][:2].tolist() == words[0][leaders].tolist()
    # What stands on padding is no matter; what stands on a word is, and is named.
    tokens[1, len(sequences[1]) :] = tokens[0, 0] = np.nan
    again, _ = encoder.encode(Texts(texts, sequences, vectors, {TOKENS: tokens}))
    assert again.tobytes() == records.tobytes()
    tokens[2, words[2][0], 3] = np.inf
    with pytest.raises(ValueError, match="the token vectors of document 'c' are not finite"):
        encoder.encode(Texts(texts, sequences, vectors, {TOKENS: tokens}))


def test_a_store_of_another_model_than_the_index_is_refused(tmp_path: Path) -> None:
    for below, remedy in (("", "rebuild the index"), ("delta/", "roll back to an older version")):
        segment = segment_of(tmp_path / (below or "base"), hashes={"model": "b" * 64})
        files = {f"late/{path.name}": ((0,), "") for path in (segment.folder / "late").iterdir()}
        verified = replace(segment, files=cast(Any, files), readers={}, below=below)
        assert LATE_INTERACTION.open(replace(verified, hashes={"model": HEADER.model})) is not None
        said = f"^{below}late/late.json says that model a{{12}} .* b{{12}}; {remedy}"
        with pytest.raises(MismatchError, match=said):
            LATE_INTERACTION.open(verified)


@pytest.mark.parametrize("name", LIKE)
def test_stores_of_different_make_are_neither_joined_nor_merged(tmp_path: Path, name: str) -> None:
    base = segment_of(tmp_path / "base")
    same, other = (
        segment_of(tmp_path / each, HEADER.model_copy(update=changed))
        for each, changed in (("same", {}), ("other", {name: LIKE[name]}))
    )
    assert len(joined(base, same)) == 6
    said = f"{name} {str(LIKE[name])[:12]}.* and of model a{{12}}, size 24, budget 12 cannot be one store"
    with pytest.raises(MismatchError, match=said):
        joined(base, other)
    rules = LATE_INTERACTION.rules_of(base, delta=False)
    assert rules == LateRules(header=HEADER)
    made_of = replace(base, folder=tmp_path / "made", readers={})
    all_of = [MergeSource(each, np.ones(3, np.bool_)) for each in (base, other)]
    with pytest.raises(MismatchError, match="cannot be one store"):
        LATE_INTERACTION.merge(all_of, rules, made_of)


def test_base_and_delta_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    base, delta = segment_of(tmp_path / "base"), segment_of(tmp_path / "delta")
    both, stores = joined(base, delta), (base[LATE_INTERACTION], delta[LATE_INTERACTION])
    for rows in ([4, 0, 5, 1], [3], [2], [5, 5, 0]):
        alone: list[NDArray[np.uint8]] = []
        for row in rows:
            alone.append(stores[row // 3].read(np.array([row % 3]))[0])
            assert both.places(row).tolist() == stores[row // 3].places(row % 3).tolist()
        codes, starts = both.read(np.array(rows))
        assert codes.tobytes() == np.concatenate(alone).tobytes()
        assert starts.tolist() == np.cumsum([0, *map(len, alone)])[:-1].tolist()


def test_what_it_says(tmp_path: Path) -> None:
    segment = segment_of(tmp_path / "base")
    size_bytes = sum(path.stat().st_size for path in (tmp_path / "base" / "late").iterdir())
    said = LATE_INTERACTION.report(segment, LateRules(header=HEADER), {})
    each = round(size_bytes / 3, 1)
    made_of = {"size": 24, "budget": 12}
    assert said == {"late": {**made_of, "tokens": 8, "bytes": size_bytes, "bytes_per_document": each}}
    reader = segment[LATE_INTERACTION]
    assert LATE_INTERACTION.info(reader) == {"late": made_of}
    assert LATE_INTERACTION.serves(reader) == {"late": ""}
    why = LATE_INTERACTION.serves(None)["late"]
    assert "glow export-model --token-size" in why and "--no-late-interaction" in why


def test_builds_have_it_by_default_and_can_leave_it_out(tmp_path: Path, toy_model: Path) -> None:
    source = write_lines(tmp_path / "some.jsonl", documents(5))
    for name, options, has in (("default", {}, True), ("without", {"late_interaction": False}, False)):
        root = made(toy_model, source, tmp_path / name, **options)
        folder = root.folder(root.current())
        assert (folder / "late" / "codes.npy").is_file() == has
        assert ("late" in (folder / "report.json").read_text()) or not has
