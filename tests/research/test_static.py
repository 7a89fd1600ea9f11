"""`python -m research static` trains each arm once for a seed, resumes, and compares with the arm without weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.runtime import Model
from research.static import __main__ as study
from research.static.__main__ import ARMS, SIF, SifPreprocessor, app

WORDS = "bees find their way home by the sun and dance honey bread water salt boil oven bake clay".split()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    documents = [" ".join(random.choice(WORDS, 8)) for _ in range(40)]
    lines = [json.dumps({"_id": f"d{n}", "title": text}) for n, text in enumerate(documents)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    queries = [json.dumps({"_id": f"q{n}", "text": documents[n][:20]}) for n in range(12)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    rows = "".join(f"q{n}\td{n}\t1\n" for n in range(12))
    (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    texts = dict.fromkeys(" ".join(random.choice(WORDS, random.integers(1, 5))) for _ in range(200))
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def test_each_arm_is_a_row_and_a_second_call_trains_nothing(
    data: Path, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "HELD_OUT", 10)
    given = ["--texts", tmp_path / "texts.txt", "--data", data, "--out", tmp_path / "out"]
    arguments = [*map(str, given), "--model", str(toy_model), "--seeds", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = [line for line in done.output.splitlines() if line.startswith(("|yes|", "|no|"))]
    assert len(rows) == 2 * len(ARMS)
    found = json.loads((tmp_path / "out" / "results.json").read_bytes())
    assert len(found["none/0"]["nDCG@10"]["data dev"]) == 12
    assert found["BM25, learned/0"]["exponent"] != 0.5 and found["BM25, 1/0"]["exponent"] == 1.0
    again = CliRunner().invoke(app, arguments)
    assert (
        again.output == "\n".join(["|trained|weights|exponent|data dev|", "|---|---|---|---|", *rows]) + "\n"
    )


def test_a_word_weighs_less_the_more_probable_it_is(toy_model: Path) -> None:
    plain = Model.open(toy_model).preprocessor
    weights = SifPreprocessor(plain).query("bees the").weights
    total = sum(count for _, count in plain.terms.items())
    wanted = [1.0, *(SIF / (SIF + plain.terms.df(word) / total) for word in ("bees", "the")), 1.0]
    assert np.allclose(weights, wanted)
