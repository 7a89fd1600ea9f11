"""How a service is told of several indexes, and what counts once for all of them."""

from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from glow_service.commands.serve import serve_command
from glow_service.settings import Settings
from tests.attacks.harness import serving
from tests.made_index import documents, made, write


@pytest.mark.parametrize(
    ("flags", "variable", "config"),
    [
        (("--index", "a=X", "--index", "a=Y"), "", ""),
        (("--index", "a=X,b=Z", "--index", "a=Y"), "", ""),
        ((), "a=X,a=Y", ""),
        ((), "", 'index = "a=X,a=Y"'),
        ((), "", 'index = ["a=X", "a=Y"]'),
    ],
)
def test_a_name_twice_is_refused(flags: tuple[str, ...], variable: str, config: str, tmp_path: Path) -> None:
    (tmp_path / "glow.toml").write_text(config)
    single = typer.Typer(add_completion=False)
    single.command()(serve_command)
    given = ("--index-root", "x", "--config", str(tmp_path / "glow.toml"), *flags)
    done = CliRunner().invoke(single, given, env={"GLOW_INDEX": variable})
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "found 'a=Y', but the name 'a' is reserved or used twice; choose another name" in line


def test_names_reach_the_workers_whole(tmp_path: Path) -> None:
    settings = Settings(index_root=tmp_path, index=("a=my  index", "b=c, d=e"))
    again = Settings.from_environment(settings.to_environment())
    assert again.collections == {"a": Path("my  index"), "b": Path("c"), "d": Path("e")}


def test_flags_that_come_again_all_count_and_clients_have_one_limit(toy_model: Path, tmp_path: Path) -> None:
    roots = [
        made(toy_model, write(tmp_path / f"{name}.jsonl", documents(10)), tmp_path / name, index="flat").path
        for name in ("books", "my films", "maps")
    ]
    flags = (f"--index=films={roots[1]}", f"--index=maps={roots[2]}", "--rate-limit=1", "--rate-burst=5")
    with serving(roots[0], *flags) as service:
        paths = ("/search", "/v1/films/search", "/v1/maps/search")

        def search(path: str, address: str) -> httpx.Response:
            headers = {"X-Forwarded-For": address}
            return http.post(f"{service.url}{path}", json={"query": "bees"}, headers=headers)

        with httpx.Client() as http:
            for number, path in enumerate(paths):
                assert search(path, f"10.0.1.{number}").status_code == 200
            answers = [search(paths[number % 2], "10.0.0.1").status_code for number in range(16)]
            # The rest of the bound is time: a token came back in each second that this took.
            assert answers[:5] == [200] * 5 and 5 <= answers.count(200) <= 7, answers
            assert set(answers) == {200, 429}
