"""Seeded mutations of a good model folder."""

import json
import random
from pathlib import Path
from typing import Any

from tests.model_export.hostile_folders import FILES

__all__ = ["mutate"]


def mutate(folder: Path, chance: random.Random) -> list[str]:
    """Changes one file, or two, of a good folder: bytes flipped, the end cut off, a value exchanged, a key twice, a file gone or of another's content; says which."""
    return [_mutate(folder, name, chance) for name in chance.sample(FILES, chance.choice((1, 1, 2)))]


def _mutate(folder: Path, name: str, chance: random.Random) -> str:
    path = folder / name
    how = chance.choice(("flip", "flip", "cut", "value", "value", "value", "twice", "delete", "swap"))
    data = bytearray(path.read_bytes())
    if how in ("value", "twice") and name.endswith(".json"):
        value = json.loads(data)
        _exchange(value, chance)
        text = json.dumps(value)
        if how == "twice" and text.startswith("{") and len(text) > 2:
            text = json.dumps(json.loads(data))[:-1] + "," + text[1:]
        path.write_text(text)
    elif how == "delete":
        path.unlink()
    elif how == "swap":
        other = folder / chance.choice(FILES)
        path.write_bytes(other.read_bytes() if other.is_file() else b"")
    elif how == "cut":
        path.write_bytes(data[: chance.randrange(len(data))])
    else:
        for _ in range(chance.choice((1, 1, 3, 20))):
            # Half of them where weights have their header: the rest of that file is numbers.
            data[chance.randrange(chance.choice((len(data), min(len(data), 2_000))))] ^= (
                1 << chance.randrange(8)
            )
        path.write_bytes(data)
    return f"{how} {name}"


ODD = (
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**63,
    10**30,
    1e308,
    "",
    "x",
    "../..",
    "a" * 5_000,
    [],
    {},
    [[]],
    {"a": 1},
)


def _exchange(value: Any, chance: random.Random) -> None:
    """Puts something odd in the place of a value somewhere in JSON."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.8:
            value = value[key]
            continue
        value[key] = chance.choice(ODD)
        return
