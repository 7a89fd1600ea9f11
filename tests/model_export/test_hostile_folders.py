"""Model folders that others made: whatever one holds, `glow import-model` makes a model of it, or says in one line why not."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import FormatError
from glow.runtime import Model
from glow.text import TokenizerPieces
from tests.model_export.hostile_folders import ENDLESS, FILES, HOSTILE, import_folder, make_folder
from tests.program import python

TAKEN = "exists already; choose another name"
"""What the command says of a folder that it read whole, where there is a model of that name; no graph was made by then."""
MUTATIONS = 60


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("good") / "encoder")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every hostile folder given to the command, by a process of its own: its memory is theirs."""
    scratch = tmp_path_factory.mktemp("hostile")
    done = python("-m", "tests.model_export.hostile_folders", scratch, timeout=300)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


def test_the_folder_that_hostile_ones_are_made_of_is_good(good: Path, tmp_path: Path) -> None:
    done = import_folder(good, tmp_path / "model")
    assert done.exit_code == 0, done.output
    encodes(tmp_path / "model")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_ends_in_one_line(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes[name]
    assert outcome["exit"] == 2, outcome
    assert outcome["said"].count("\n") == 1 and len(outcome["said"]) < 2_500, outcome
    assert outcome["said"].startswith("glow: error (invalid_config): "), outcome


def test_hostile_folders_take_neither_time_nor_memory(outcomes: dict[str, dict[str, Any]]) -> None:
    assert TAKEN in outcomes["good"]["said"]
    assert max(each["seconds"] for each in outcomes.values()) < 20.0
    assert max(each["peak_mb"] for each in outcomes.values()) < 600.0


def test_a_tokenizer_that_panics_on_some_text_is_a_named_error(good: Path, tmp_path: Path) -> None:
    spec = json.loads((good / "tokenizer.json").read_bytes()) | {"normalizer": None, "pre_tokenizer": ENDLESS}
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    spec["padding"] = padding | {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    pieces = TokenizerPieces(tmp_path / "vocab.txt")
    assert pieces.words("bees") == ["bees"]
    with pytest.raises(FormatError, match=r"tokenizer\.json cannot spell a text: Onig"):
        pieces.words("x" * 40)


ODD = (
    *(None, True, -1, 0, 1, 2, 7, 2**31, 2**63, 10**30, 1e308),
    *("", "x", "../..", "a" * 5_000, [], {}, [[]], {"a": 1}),
)


def mutate(folder: Path, chance: random.Random) -> list[str]:
    """Changes one file, or two, of a good folder; says how."""
    return [mutate_file(folder / name, chance) for name in chance.sample(FILES, chance.choice((1, 1, 2)))]


def mutate_file(path: Path, chance: random.Random) -> str:
    """Bytes flipped, the end cut off, a value exchanged, a key twice, a file gone or of other content."""
    how = chance.choice(("flip", "flip", "cut", "value", "value", "value", "twice", "delete", "swap"))
    data = bytearray(path.read_bytes())
    if how in ("value", "twice") and path.suffix == ".json":
        value = json.loads(data)
        exchange(value, chance)
        text = json.dumps(value)
        if how == "twice" and text.startswith("{") and len(text) > 2:
            text = json.dumps(json.loads(data))[:-1] + "," + text[1:]
        path.write_text(text)
    elif how == "delete":
        path.unlink()
    elif how == "swap":
        path.write_bytes(json.dumps(chance.choice(ODD)).encode())
    elif how == "cut":
        path.write_bytes(data[: chance.randrange(len(data))])
    else:
        for _ in range(chance.choice((1, 1, 3, 20))):
            # Half of them where weights have their header: the rest of that file is numbers.
            data[chance.randrange(chance.choice((len(data), min(len(data), 2_000))))] ^= (
                1 << chance.randrange(8)
            )
        path.write_bytes(data)
    return f"{how} {path.name}"


def exchange(value: Any, chance: random.Random) -> None:
    """Puts something odd in the place of a value somewhere in JSON."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.8:
            value = value[key]
            continue
        value[key] = chance.choice(ODD)
        return


def refused_or_whole(good: Path, scratch: Path, seed: int) -> bool:
    """Gives a mutation to the command; whether it could be imported."""
    folder = shutil.copytree(good, scratch / str(seed))
    what = mutate(folder, random.Random(seed))  # noqa: S311 - chooses what to change, keeps no secret
    (scratch / "taken").mkdir(exist_ok=True)
    done = import_folder(folder, scratch / "taken")
    told = f"seed {seed}, {what}: exit {done.exit_code}, {done.output} {done.exception!r}"
    assert done.output.count("\n") == 1 and done.output.startswith("glow: error ("), told
    if done.exit_code == 4 and TAKEN in done.output:
        return True
    assert done.exit_code == 2, told
    shutil.rmtree(folder)
    return False


def encodes(model: Path) -> None:
    made = Model.open(model)
    for text in ("how do bees find their way home", "東京 \U0001f41d", ""):
        assert np.isfinite(made.encoder("query").encode([made.preprocessor.query(text)])).all()


def test_a_mutated_folder_is_read_or_refused_in_one_line(good: Path, tmp_path: Path) -> None:
    whole = [seed for seed in range(MUTATIONS) if refused_or_whole(good, tmp_path, seed)]
    assert 0.1 < len(whole) / MUTATIONS < 0.5  # else the mutations try nothing
    for seed in whole[:3]:
        done = import_folder(tmp_path / str(seed), tmp_path / f"model-{seed}")
        if done.exit_code == 0:
            encodes(tmp_path / f"model-{seed}")
        else:
            assert "vectors hold NaN or infinity" in done.output, f"seed {seed}: {done.exception!r}"
