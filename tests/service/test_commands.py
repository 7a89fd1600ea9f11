"""`glow search`, `glow explain`, `glow doctor`, and settings in files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

from glow.index import Index
from glow.records import Document
from glow.text.highlight import Highlighter
from glow_service.commands.doctor import doctor_command
from glow_service.commands.explain import Explained, as_tables, explain_command
from glow_service.commands.search import search_command
from glow_service.commands.serve import read_files, serve_command
from glow_service.search.explanations import explain
from glow_service.settings import settings_table
from tests.made_index import documents
from tests.service.asking import QUERY, BuildIndex, invoke


def refusal(*flags: object, **variables: str) -> str:
    done = invoke(serve_command, *flags, GLOW_INDEX_ROOT="x", **variables)
    assert done.exit_code == 2
    return done.stderr


def test_a_flag_wins_over_a_variable_that_over_a_file_and_that_over_the_default(tmp_path: Path) -> None:
    # What was chosen shows in the complaint about a limit that the chosen value breaks.
    variables = {"GLOW_MAX_TIMEOUT_MS": "50"}
    assert "default_timeout_ms 2000 exceeds" in refusal(**variables)
    (config := tmp_path / "glow.toml").write_text("default_timeout_ms = 60\n")
    variables["GLOW_CONFIG"] = str(config)
    assert "default_timeout_ms 60 exceeds" in refusal(**variables)
    variables["GLOW_DEFAULT_TIMEOUT_MS"] = "70"
    assert "default_timeout_ms 70 exceeds" in refusal(**variables)
    assert "default_timeout_ms 80 exceeds" in refusal("--default-timeout-ms", 80, **variables)


def test_settings_that_are_not_valid_are_all_named_at_once(tmp_path: Path) -> None:
    said = refusal("--workers", -1, "--otel-endpoint", "grpc://collector:4317", GLOW_MAX_TOP_K="-1")
    assert "--workers (GLOW_WORKERS)" in said and "--max-top-k (GLOW_MAX_TOP_K)" in said
    assert "--otel-endpoint" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [("prot = 1", "has unknown settings: prot"), ("port = ", "cannot read"), (None, "cannot read")],
)
def test_a_file_that_is_none_ends_the_start(text: str | None, said: str, tmp_path: Path) -> None:
    config = tmp_path / "glow.toml"
    if text is not None:
        config.write_text(text)
    assert said in refusal("--config", config)


def test_a_secret_is_read_from_a_file_and_not_told(tmp_path: Path) -> None:
    (secret := tmp_path / "keys").write_text("hunter2\n")
    said = refusal(GLOW_API_KEYS_FILE=str(secret))
    assert "api_keys: entry 1 of 1 has no colon" in said and "hunter2" not in said
    missing = str(tmp_path / "no")
    assert "GLOW_ADMIN_KEY_FILE: cannot read" in refusal(GLOW_ADMIN_KEY_FILE=missing)
    assert read_files(None, settings_table(), {"GLOW_PORT_FILE": missing}) == {}  # no secret


# `glow search` and `glow doctor`.


def test_hits_are_ranked_with_titles_scores_and_marked_snippets(toy_index: Path) -> None:
    done = invoke(search_command, QUERY, "--index-root", toy_index, "--top-k", 2)
    assert done.exit_code == 0, done.stderr
    first, ids, snippet, *_ = done.stdout.splitlines()
    assert first.startswith("  1  ") and "toy/0" in ids
    assert "bees" in snippet and "<em>" not in snippet and "\x1b" not in done.stdout
    assert "2 hits of" in done.stdout
    done = invoke(search_command, "slamon swim", "--index-root", toy_index, "--top-k", 1)
    assert done.stdout.splitlines()[0] == "showing results for 'salmon swim'"


def test_a_search_is_filtered_sorted_and_counted_in_the_root_of_the_environment(toy_index: Path) -> None:
    def search(*flags: str) -> Result:
        return invoke(search_command, QUERY, *flags, GLOW_INDEX_ROOT=str(toy_index))

    flags = (
        "--filter",
        '{"lang": "en"}',
        "--sort",
        "-year,score",
        "--facets",
        "lang,year",
        "--fields",
        "year",
    )
    answer = json.loads(search(*flags, "--json", "-").stdout)
    assert answer["query"]["text"] == QUERY
    years = [hit["metadata"].get("year", 0) for hit in answer["hits"]]
    assert years == sorted(years, reverse=True) and years[0]
    assert {each["value"] for each in answer["facets"]["lang"]["values"]} == {"en"}
    lines = search(*flags).stdout.splitlines()
    assert f"     year: {years[0]}" in lines and lines[-3].startswith("lang: en ")
    for retriever, parts in (("lexical", {"lexical"}), ("auto", {"dense", "lexical"})):
        answer = json.loads(search("--retriever", retriever, "--json", "-").stdout)
        assert set(answer["hits"][0]["scores"]) == parts
    refused = search("--filter", "{lang}")
    assert refused.exit_code == 2 and "/filter: not JSON" in refused.stderr
    assert "connection_failed" in search("--url", "http://127.0.0.1:9").stderr


def test_a_filter_alone_lists_what_it_matches(toy_index: Path) -> None:
    done = invoke(search_command, "--index-root", toy_index, "--filter", '{"lang": "en"}', "--json", "-")
    answer = json.loads(done.stdout)
    ids = [hit["id"] for hit in answer["hits"]]
    assert ids == sorted(ids) and len(ids) == 10 and answer["total"] > 10
    assert {hit["metadata"]["lang"] for hit in answer["hits"]} == {"en"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bees"], 2, "give either --index-root"),
        (["--index-root", "ROOT"], 2, "the query is empty"),
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
    done = invoke(search_command, *(toy_index if word == "ROOT" else word for word in arguments))
    assert done.exit_code == code and message in done.stderr


def test_the_doctor_finds_a_damaged_index_and_a_redis_that_is_not_there(
    toy_index: Path, index_copy: Path
) -> None:
    well = invoke(doctor_command, "--index-root", toy_index)
    assert well.exit_code == 0, well.stdout
    assert "ok    index" in well.stdout and "50 documents" in well.stdout
    (path,) = index_copy.glob("*/vectors.faiss")
    path.write_bytes(path.read_bytes()[:-1])
    nobody = "redis://127.0.0.1:9"
    ill = invoke(doctor_command, "--index-root", index_copy, "--redis-url", nobody, "--json", "-")
    assert ill.exit_code == 1
    faults = [row["name"] for row in json.loads(ill.stdout)["findings"] if row["status"] == "fault"]
    assert faults == ["redis", "index"]


# `glow explain`: tables for people, JSON for programs, and an exit code for each failure.


def run_explain(root: Path, *arguments: str, query: str = QUERY) -> Result:
    return invoke(explain_command, "--index-root", root, "--query", query, *arguments)


def explained(root: Path, *arguments: str) -> dict[str, Any]:
    done = run_explain(root, "--json", "-", *arguments)
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_hits_or_any_documents_are_explained(toy_index: Path) -> None:
    found = explained(toy_index, "--top-k", "3", "--leave-one-out")
    assert found["hits"][0]["id"] == "toy/0" and len(found["hits"]) == 3
    for hit in found["hits"]:
        assert hit["scores"]["dense"] == pytest.approx(hit["score"], abs=1e-5)
        assert set(hit["explanation"]["terms"][0]) == {"field", "word", "tf", "idf", "weight", "attention"}
        assert [one["word"] for one in hit["explanation"]["leave_one_out"]] == QUERY.split()
    highlights = found["hits"][0]["highlights"]
    assert "<em>bees</em>" in highlights["text"][0] and 'class="attended"' in str(highlights)
    chosen = explained(toy_index, "--id", "toy/49", "--id", "toy/0")["hits"]
    assert [hit["id"] for hit in chosen] == ["toy/49", "toy/0"]
    assert "leave_one_out" not in chosen[0]["explanation"]


def test_why_a_document_is_not_found_comes_first(toy_index: Path, tmp_path: Path) -> None:
    done = run_explain(toy_index, "--id", "toy/0", "--filter", '{"lang": "zz"}')
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith('toy/0  Not found: the filter excludes it: {"lang":"zz"}.\n')
    assert f"query  {QUERY}" in done.stdout
    (synonyms := tmp_path / "synonyms.txt").write_text("honeymakers => bees\n")
    flags = ("--id", "toy/0", "--synonyms", str(synonyms), "--retriever", "lexical", "--json", "-")
    (reason,) = json.loads(run_explain(toy_index, *flags, query="honeymakers").stdout)["documents"]
    assert (reason["rank"], reason["total"]) == (1, 1)  # by words alone
    assert reason["words"]["because"] == {"honeymakers": "bees"}


def test_tables_show_words_bars_and_changes(toy_index: Path) -> None:
    done = run_explain(toy_index, "--id", "toy/0", "--words", "2", "--leave-one-out")
    assert done.exit_code == 0, done.stderr
    assert "toy/0  score" in done.stdout and "█" in done.stdout
    assert "\x1b" not in done.stdout  # colour is for terminals
    assert re.search(r"^bees +-0\.\d{4}", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^\w+ +text +\d", done.stdout, re.MULTILINE)) <= 2


def test_what_a_document_holds_is_no_command_to_the_terminal(index: Index) -> None:
    document = Document("\x1b[2Jid", {"title": ("\x1b]0;owned\x07 bees [bold]x[/bold] \x9b31m",)})
    fragments = [Highlighter(index.preprocessor).document(document, "bees")]
    shown = Explained("\x1bbees", [document], [None], explain(index, "bees", [document]), fragments)
    console = Console(force_terminal=False, width=120)
    with console.capture() as captured:
        console.print(*as_tables(shown, 5))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", captured.get())
    assert "[bold]x[/bold]" in captured.get()


@pytest.mark.parametrize(
    ("arguments", "query", "message"),
    [
        (["--id", "nope"], QUERY, "document_not_found"),
        ([], " ", "invalid_query"),
        (["--top-k", "0"], QUERY, "--top-k"),
        (["--fragment-chars", "3"], QUERY, "--fragment-chars"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(
    toy_index: Path, arguments: list[str], query: str, message: str
) -> None:
    done = run_explain(toy_index, *arguments, query=query)
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr


def test_no_index_and_one_without_reasons_are_exit_code_3_and_say_what_to_do(
    build_index: BuildIndex, tmp_path: Path
) -> None:
    done = run_explain(build_index(documents(3), explain=False))
    assert done.exit_code == 3 and "not_available" in done.stderr and "build it again" in done.stderr
    done = run_explain(tmp_path)
    assert done.exit_code == 3 and "artifact_not_found" in done.stderr
