"""The figures that README cites are those of the raw results that are kept with the tables."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
RAW: dict[str, dict[str, Any]] = json.loads(
    gzip.decompress((RESULTS / "default-model.queries.json.gz").read_bytes())
)
"""Dataset -> `queries` (ids), and row of README's table -> measure -> value of each query."""
PEERS = json.loads((RESULTS / "serving-peers.json").read_bytes())["rows"]
SERVERS = [row for row in PEERS if row["clients"] == 8]
QUALITY = (RESULTS / "quality.md").read_text(encoding="utf-8")
SETS = {"tldr": 2906, "MedQuAD": 1422, "cranfield": 225, "LiveQA": 55}
PAGE_NAMES = {"tldr": "tldr dev", "MedQuAD": "medquad dev", "LiveQA": "liveqa-dev", "cranfield": "cranfield"}


def table(page: str, heading: str) -> dict[str, list[str]]:
    """First cell -> other cells of the table that begins with this line."""
    lines = page[page.index(heading) :].split("\n\n")[0].splitlines()
    rows = [line.replace("*", "")[1:-1].split("|") for line in lines[2:]]
    return {name: cells for name, *cells in rows}


def shown(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def mean(data: str, row: str, measure: str) -> str:
    return shown(float(np.mean(RAW[data][row][measure])))


README = table((ROOT / "README.md").read_text(encoding="utf-8"), f"||{'|'.join(SETS)}|CPU ms|")


def test_every_query_has_a_value() -> None:
    assert {data: len(set(rows["queries"])) for data, rows in RAW.items()} == SETS
    for rows in RAW.values():
        assert rows.keys() >= README.keys()
        for name in rows.keys() - {"queries"}:
            assert all(len(rows[name][measure]) == len(rows["queries"]) for measure in ("RR@10", "nDCG@10"))


@pytest.mark.parametrize("row", README)
def test_the_table_of_readme_is_the_mean_over_queries(row: str) -> None:
    for data, cell in zip(SETS, README[row], strict=False):
        assert cell == mean(data, row, "nDCG@10"), data


def test_the_strongest_rival_on_cranfield_is_named() -> None:
    fused = mean("cranfield", "BM25 + MiniLM, RRF", "nDCG@10")
    assert f"Fused ({fused})" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"it has {fused} on cranfield" in QUALITY


def test_pages_have_the_same_means() -> None:
    served = table(QUALITY, "||before|2026-11-25|the model of 2026-11-28|its dense search|")
    for name, cells in served.items():
        label, *measures = name.replace(",", " /").split(" / ")
        data = {page: data for data, page in PAGE_NAMES.items()}.get(label)
        for row, cell in zip(("GLOW hybrid", "GLOW dense"), cells[2:], strict=True):
            if data:
                assert cell == " / ".join(mean(data, row, measure) for measure in measures), name
    peers = table(QUALITY, "||tldr dev RR@10 / RR@20")
    for row, name in (("plain BM25", "BM25"), ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2, zero-shot, 6 layers")):
        for data, cell, place in zip(PAGE_NAMES, peers[name], (2, 1, 1, 1), strict=True):
            assert cell.split(" / ")[place] == mean(data, row, "nDCG@10"), (name, data)


def test_differences_to_rivals_are_those_of_the_queries() -> None:
    rows = table(QUALITY, "||tldr|medquad|cranfield|liveqa-dev|")
    pairs = (("GLOW dense", "all-MiniLM-L6-v2"), ("GLOW hybrid", "plain BM25 + MiniLM, RRF"))
    for (one, other), cells in zip(pairs, rows.values(), strict=True):
        for data, cell in zip(SETS, cells, strict=True):
            less = np.subtract(RAW[data][one]["nDCG@10"], RAW[data][other]["nDCG@10"]).mean()
            assert cell.split()[0] == f"{less:+.3f}".replace("0.", ".", 1).replace("-", "−"), data


def test_cpu_is_that_of_the_servers() -> None:
    cpu = {row["contender"]: f"{row['server_cpu_ms']:.3g}" for row in SERVERS}
    minilm = f"{cpu['a']}; int8: {cpu['b']}"
    wanted = [cpu["GLOW"], cpu["GLOW dense"], cpu["GLOW words"], minilm, "–"]
    assert [cells[4] for cells in README.values()] == wanted


def test_the_page_of_serving_has_the_same_servers() -> None:
    page = table((RESULTS / "serving.md").read_text(encoding="utf-8"), "||nDCG@10|queries/s|p50 ms|")
    for row, cells in zip(SERVERS, page.values(), strict=True):
        assert cells[0] == shown(row["nDCG@10"])
        for name, cell in zip(("per_second", "p50_ms", "p99_ms", "server_cpu_ms"), cells[1:], strict=False):
            assert float(cell.replace(",", "")) == pytest.approx(row[name], rel=0.01)
