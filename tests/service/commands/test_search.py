"""`glow search` and `glow doctor`: what they print, and what they refuse."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from glow_service.commands.doctor import doctor_command
from glow_service.commands.search import search_command

QUERY = "how do bees find the way home"


def run(function: object, *arguments: object) -> Result:
    app = typer.Typer(add_completion=False)
    app.command()(function)  # type: ignore[type-var]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_hits_are_ranked_with_titles_scores_and_marked_snippets(toy_index: Path) -> None:
    done = run(search_command, QUERY, "--index-root", toy_index, "--top-k", 2)
    assert done.exit_code == 0, done.stderr
    first, ids, snippet, *_ = done.stdout.splitlines()
    assert first.startswith("  1  ") and "toy/0" in ids
    assert "bees" in snippet and "<em>" not in snippet and "\x1b" not in done.stdout
    assert "2 hits of" in done.stdout


def test_a_corrected_slip_is_told(toy_index: Path) -> None:
    done = run(search_command, "slamon swim", "--index-root", toy_index, "--top-k", 1)
    assert done.stdout.splitlines()[0] == "showing results for 'salmon swim'"


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid", "auto"])
def test_json_is_the_answer_of_the_service(toy_index: Path, retriever: str) -> None:
    done = run(search_command, QUERY, "--index-root", toy_index, "--retriever", retriever, "--json")
    answer = json.loads(done.stdout)
    assert set(answer["hits"][0]["scores"]) == (
        {"dense", "lexical", "late"} if retriever in ("hybrid", "auto") else {retriever}
    )
    assert answer["query"]["text"] == QUERY


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bees"], 2, "give either --index-root"),
        (["bees", "--index-root", "x", "--url", "http://x"], 2, "give either --index-root"),
        ([" ", "--index-root", "ROOT"], 2, "the query is empty"),
        (["bees", "--index-root", "ROOT", "--top-k", "0"], 2, "--top-k"),
        (["bees", "--index-root", "nowhere"], 3, "no published index"),
        (["bees", "--url", "http://127.0.0.1:9"], 1, "connection_failed"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    toy_index: Path, arguments: list[str], code: int, message: str
) -> None:
    done = run(search_command, *(str(toy_index) if word == "ROOT" else word for word in arguments))
    assert done.exit_code == code, done.stderr
    assert message in done.stderr


def test_the_doctor_finds_a_damaged_index_and_a_redis_that_is_not_there(
    toy_index: Path, tmp_path: Path
) -> None:
    well = run(doctor_command, "--index-root", toy_index)
    assert well.exit_code == 0, well.stdout
    assert "ok    index" in well.stdout and "50 documents" in well.stdout
    root = tmp_path / "index"
    shutil.copytree(toy_index, root)
    (path,) = root.glob("*/vectors.faiss")
    path.write_bytes(path.read_bytes()[:-1])
    ill = run(doctor_command, "--index-root", root, "--redis-url", "redis://127.0.0.1:9", "--json", "-")
    assert ill.exit_code == 1
    faults = [row["name"] for row in json.loads(ill.stdout)["findings"] if row["status"] == "fault"]
    assert faults == ["redis", "index"]
