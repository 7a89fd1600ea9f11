"""Random operations on an index, beside a plain model in memory: what is found, counted, sorted and paged is the same."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import IndexRoot
from glow.contract import FoundHits
from glow.index import Index
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow_service.search.plan import plan_search
from glow_service.search.request import SearchRequest, parsed
from glow_service.search.run import SearchSession
from glow_service.settings import Settings
from tests.made_index import compacted, deleted, documents, made, opened, upserted, write

STEPS = int(os.environ.get("STEPS", "250"))
TEXTS = ("how do bees find home at night", "a note on glaciers", "tea zebra")
SETTINGS = Settings(index_root=Path("unused"), max_top_k=200)
Records = dict[str, dict[str, Any]]
FILTERS: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"field": "lang", "eq": "en"}, lambda each: each["lang"] == "en"),
    ({"field": "lang", "in": ["de", "fr"]}, lambda each: each["lang"] in ("de", "fr")),
    ({"field": "year", "gte": 2008}, lambda each: each["year"] >= 2008),
    ({"field": "tags", "eq": "t1"}, lambda each: "t1" in each["tags"]),
    ({"field": "open", "exists": True}, lambda each: "open" in each),
    ({"not": {"field": "open", "eq": True}}, lambda each: each.get("open") is not True),
    (
        {"and": [{"field": "lang", "eq": "en"}, {"field": "year", "lt": 2010}]},
        lambda each: each["lang"] == "en" and each["year"] < 2010,
    ),
    (
        {"or": [{"field": "day", "gte": "2024-06-01"}, {"field": "tags", "eq": "t4"}]},
        lambda each: each["day"] >= "2024-06-01" or "t4" in each["tags"],
    ),
)


def searched(index: Index, body: dict[str, Any]) -> FoundHits:
    return SearchSession(index, plan_search(parsed(SearchRequest, body), SETTINGS, index)).run().found


def look(index: Index, held: Records, chance: random.Random) -> None:
    """One search without a text: every document that a filter allows."""
    said, allows = chance.choice(FILTERS)
    found = [name for name in sorted(held, key=str.encode) if allows(held[name])]
    body: dict[str, Any] = {"filter": said, "top_k": chance.randint(1, 30), "offset": chance.randint(0, 60)}
    field = chance.choice(("year", "day", None))
    if field is not None:
        down = chance.random() < 0.5
        found.sort(key=lambda name: held[name][field], reverse=down)
        if down:  # equal ones stay in the order of ids
            found.sort(key=str.encode)
            found.sort(key=lambda name: held[name][field], reverse=True)
        body["sort"] = [{"field": field, "order": "desc" if down else "asc"}]
    body["facets"] = [{"field": "lang"}, {"field": "tags", "limit": 100}]
    answer = searched(index, body)
    page = found[body["offset"] :][: body["top_k"]]
    assert [hit.id for hit in answer.hits] == page, body
    for name, values in (("lang", lambda each: [each["lang"]]), ("tags", lambda each: set(each["tags"]))):
        counts = Counter(value for each in found for value in values(held[each]))
        assert {each.value: each.count for each in answer.facets[name].values} == counts, body


def answers(index: Index) -> Iterator[FoundHits]:
    for text, retriever, chosen in product(TEXTS, ("dense", "lexical", "hybrid"), (None, *FILTERS[:3])):
        body = {"query": text, "retriever": retriever, "top_k": 20, "candidates": 60, "typos": "off"}
        body |= {"params": {"exact": True}, "facets": [{"field": "lang"}, {"field": "year", "limit": 3}]}
        yield searched(index, body | ({} if chosen is None else {"filter": chosen[0]}))


def compact(root: IndexRoot) -> None:
    """Folds the delta in, which changes no answer."""
    before = list(answers(opened(root)))
    compacted(root)
    assert opened(root).delta is None
    for here, there in zip(before, answers(opened(root)), strict=True):
        for name in ("id", "fields", "metadata", "passage"):
            assert [getattr(hit, name) for hit in here.hits] == [getattr(hit, name) for hit in there.hits]
        scores = [[hit.score for hit in each.hits] for each in (here, there)]
        np.testing.assert_allclose(*scores, atol=1e-5)
        assert here.facets == there.facets


def test_it_answers_as_a_plain_model(toy_model: Path, tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - test data
    every = [
        {**each, "text": each["text"] * (8 if number % 6 == 0 else 1)}
        for number, each in enumerate(documents(240))
    ]
    held: Records = {each["_id"]: each for each in every[:120]}
    cut = {"index": "flat", "passages": True}
    root = made(toy_model, write(tmp_path / "base.jsonl", every[:120]), tmp_path / "index", **cut)
    index, versions = opened(root), {root.current(): dict(held)}
    for _ in range(STEPS):
        if chance.random() < 0.9:
            look(index, held, chance)
            continue
        match chance.choice(("upsert", "upsert", "delete", "delete", "compact", "build", "publish")):
            case "upsert":
                chosen = [{**each, "year": chance.randint(2000, 2020)} for each in chance.sample(every, 5)]
                upserted(root, toy_model, chosen)
                held = held | {each["_id"]: each for each in chosen}
            case "delete" if len(held) > 20:
                gone = chance.sample(sorted(held), 7)
                deleted(root, *gone)
                held = {name: each for name, each in held.items() if name not in gone}
            case "compact":
                compact(root)
            case "build":
                rows = chance.sample(every, 90)
                made(toy_model, write(tmp_path / "again.jsonl", rows), root.path, **cut)
                held = {each["_id"]: each for each in rows}
            case "publish":
                version = chance.choice(sorted(versions))
                root.publish(version)
                held = dict(versions[version])
        versions[root.current()] = dict(held)
        index = opened(root)
        assert index[STORED_FIELDS].count == len(held)
    upserted(root, toy_model, every[:5])
    deleted(root, *sorted(held)[5:15])
    assert opened(root).delta is not None and len(opened(root)[PASSAGES]) > opened(root)[STORED_FIELDS].count
    compact(root)
