"""`glow search`, `glow explain`, and settings in files."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from glow.artifact import IndexRoot, read_manifest
from glow.errors import ConfigError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.records import Document
from glow.text.highlight import Highlighter
from glow_service.commands.doctor import doctor_command
from glow_service.commands.explain import Explained, as_tables, explain_command
from glow_service.commands.search import search_command
from glow_service.commands.serve import read_files, serve_command
from glow_service.errors import NotAvailableError
from glow_service.search.explanations import explain, require_explainer
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from glow_service.settings import settings_table
from tests.attacks.harness import ROOT
from tests.ports import free_port
from tests.service.asking import QUERY, live_index

KEY = "a-key-of-somebody"
HASH = hashlib.sha256(KEY.encode()).hexdigest()


def test_files_are_read_behind_variables_and_flags(toy_index: Path, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "glow.toml"
    lines = f'index_root = "{toy_index}"\nport = 1\nmax_top_k = 7\ndefault_timeout_ms = 900\nworkers = 1\n'
    config.write_text(lines)
    secret = tmp_path / "keys"
    secret.write_text(f"ann:{HASH}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    environment |= {"GLOW_CONFIG": str(config), "GLOW_API_KEYS_FILE": str(secret), "GLOW_MAX_TOP_K": "9"}
    command = [sys.executable, "-m", "glow", "serve", "--port", str(port)]
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=file) as process,
    ):
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport) as client:
            while True:
                try:
                    if client.get("/readyz").status_code == 200:
                        break
                except httpx.HTTPError:
                    assert process.poll() is None
            assert client.get("/info").status_code == 401
            settings = client.get("/info", headers={"X-API-Key": KEY}).json()["settings"]
        process.terminate()
    assert (settings["port"], settings["max_top_k"], settings["default_timeout_ms"]) == (port, 9, 900)
    assert "listening" in log.read_text() and not any(word in log.read_text() for word in (KEY, HASH))


@pytest.mark.parametrize(
    ("text", "said"),
    [("prot = 1", "has unknown settings: prot"), ("port = ", "cannot read"), (None, "cannot read")],
)
def test_a_file_that_is_none_ends_the_start(text: str | None, said: str, tmp_path: Path) -> None:
    config = tmp_path / "glow.toml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_files(config, settings_table())
    done = run(serve_command, "--index-root", "x", "--config", config)
    assert done.exit_code == 2 and said in done.stderr


def test_a_secret_whose_file_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GLOW_ADMIN_KEY_FILE: cannot read"):
        read_files(None, settings_table(), {"GLOW_ADMIN_KEY_FILE": str(tmp_path / "no")})
    assert read_files(None, settings_table(), {"GLOW_PORT_FILE": str(tmp_path / "no")}) == {}  # no secret


# `glow search` and `glow doctor`: what they print, and what they refuse.


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


@pytest.mark.parametrize("retriever", ["lexical", "auto"])
def test_json_is_the_answer_of_the_service(toy_index: Path, retriever: str) -> None:
    done = run(search_command, QUERY, "--index-root", toy_index, "--retriever", retriever, "--json", "-")
    answer = json.loads(done.stdout)
    parts = {"lexical"} if retriever == "lexical" else {"dense", "lexical"}
    assert set(answer["hits"][0]["scores"]) == parts
    assert answer["query"]["text"] == QUERY


def test_a_search_is_filtered_sorted_and_counted_in_the_root_of_the_environment(
    toy_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOW_INDEX_ROOT", str(toy_index))
    more = (
        "--filter",
        '{"lang": "en"}',
        "--sort",
        "-year,score",
        "--facets",
        "lang,year",
        "--fields",
        "year",
    )
    done = run(search_command, QUERY, *more, "--json", "-")
    answer = json.loads(done.stdout)
    years = [hit["metadata"].get("year", 0) for hit in answer["hits"]]
    assert years == sorted(years, reverse=True) and years[0]
    assert {each["value"] for each in answer["facets"]["lang"]["values"]} == {"en"}
    lines = run(search_command, QUERY, *more).stdout.splitlines()
    assert f"     year: {years[0]}" in lines and lines[-3].startswith("lang: en ")
    refused = run(search_command, QUERY, "--filter", "{lang}")
    assert refused.exit_code == 2 and "/filter: not JSON" in refused.stderr
    assert "connection_failed" in run(search_command, QUERY, "--url", "http://127.0.0.1:9").stderr


def test_a_filter_alone_lists_what_it_matches(toy_index: Path) -> None:
    done = run(search_command, "--index-root", toy_index, "--filter", '{"lang": "en"}', "--json", "-")
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


# `glow explain`: tables for people, JSON for programs, and an exit code for each failure.


@pytest.fixture
def older(toy_index: Path, tmp_path: Path) -> Path:
    """The toy index as a version without explain graphs: its manifest does not name them."""
    name = IndexRoot(toy_index).current()
    folder = shutil.copytree(toy_index / name, tmp_path / name)
    manifest = read_manifest(folder, "index")
    files = {name: record for name, record in manifest.files.items() if "explain" not in name}
    (folder / "manifest.json").write_bytes(manifest.model_copy(update={"files": files}).to_bytes())
    (tmp_path / "CURRENT").write_text(name + "\n")
    return tmp_path


def run_explain(root: Path, *arguments: str, query: str = QUERY) -> Result:
    return run(explain_command, "--index-root", root, "--query", query, *arguments)


def as_json(root: Path, *arguments: str) -> dict[str, Any]:
    done = run_explain(root, "--json", "-", *arguments)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_hits_of_a_search_are_explained_in_its_order(toy_index: Path, index: Index) -> None:
    hits = SearchSession(index, SearchPlan(QUERY, 3, 0, 200, SearchParams())).run().found.hits
    found = as_json(toy_index, "--top-k", "3", "--leave-one-out")
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in hits]
    for hit, expected in zip(found["hits"], hits, strict=True):
        assert hit["score"] == pytest.approx(expected.score, abs=1e-6)
        assert hit["scores"]["dense"] == pytest.approx(expected.score, abs=1e-5)
        assert set(hit["explanation"]["terms"][0]) == {"field", "word", "tf", "idf", "weight", "attention"}
        assert [one["word"] for one in hit["explanation"]["leave_one_out"]] == QUERY.split()
    first = found["hits"][0]
    assert first["id"] == "toy/0" and "<em>bees</em>" in first["highlights"]["text"][0]
    assert 'class="attended"' in json.dumps(first["highlights"]).replace('\\"', '"')
    total = sum(term["attention"] for term in found["query"]["explanation"]["terms"])
    assert total + found["query"]["explanation"]["specials"] == pytest.approx(1.0, abs=1e-5)


def test_any_document_can_be_asked_for(toy_index: Path) -> None:
    found = as_json(toy_index, "--id", "toy/49", "--id", "toy/0")
    assert [hit["id"] for hit in found["hits"]] == ["toy/49", "toy/0"]
    assert "leave_one_out" not in found["hits"][0]["explanation"]


def test_tables_show_words_bars_and_changes(toy_index: Path) -> None:
    done = run_explain(toy_index, "--id", "toy/0", "--words", "2", "--leave-one-out")
    assert done.exit_code == 0, done.stderr
    assert "toy/0  score" in done.stdout and "█" in done.stdout
    assert "\x1b" not in done.stdout  # colour is for terminals
    assert re.search(r"^bees +-0\.\d{4}", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^\w+ +text +\d", done.stdout, re.MULTILINE)) <= 2


def test_what_a_document_holds_is_no_command_to_the_terminal(index: Index) -> None:
    from rich.console import Console

    document = Document("\x1b[2Jid", {"title": ("\x1b]0;owned\x07 bees [bold]x[/bold] \x9b31m",)})
    fragments = [Highlighter(index.preprocessor).document(document, "bees")]
    shown = Explained("\x1bbees", [document], [None], explain(index, "bees", [document]), fragments)
    console = Console(force_terminal=False, width=120)
    with console.capture() as captured:
        console.print(*as_tables(shown, 5))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", captured.get())
    assert "[bold]x[/bold]" in captured.get()


@pytest.mark.parametrize(
    ("arguments", "query", "code", "message"),
    [
        (["--id", "nope"], QUERY, 2, "document_not_found"),
        ([], " ", 2, "invalid_query"),
        (["--top-k", "0"], QUERY, 2, "--top-k"),
        (["--fragment-chars", "3"], QUERY, 2, "--fragment-chars"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(
    toy_index: Path, arguments: list[str], query: str, code: int, message: str
) -> None:
    done = run_explain(toy_index, *arguments, query=query)
    assert (done.exit_code, done.stdout) == (code, "") and message in done.stderr


def test_no_index_and_one_without_reasons_are_exit_code_3_and_say_what_to_do(older: Path) -> None:
    for root, said in ((older, ("not_available", "build it again")), (older / "no", ("artifact_not_found",))):
        done = run_explain(root)
        assert done.exit_code == 3 and all(word in done.stderr for word in said)
    with pytest.raises(NotAvailableError, match="export-model writes them"):
        require_explainer(live_index(older))


def test_a_search_that_does_not_ask_opens_nothing(toy_index: Path) -> None:
    fresh = live_index(toy_index)
    found = SearchSession(fresh, SearchPlan(QUERY, 3, 0, 10, SearchParams())).run()
    assert fresh.explainer is not None and not fresh.explainer.is_open
    documents = [fresh[STORED_FIELDS].get(hit.id) for hit in found.found.hits]
    explain(fresh, QUERY, documents)
    assert fresh.explainer.is_open
