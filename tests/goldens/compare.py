"""Differences between what was recorded and what is found, each with its place."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.goldens.questions import SEARCHES
from tests.goldens.whole import ROWS

Json = dict[str, Any]
Tolerance = Callable[[str], float]
SHOWN_CHARS = 300
NEAR = 1e-4
CODED = ("learned-sparse ", "join", "late")
"""Answers by numbers that are kept in few bits: if one falls on the other side of a step, a score moves by that step."""


def exact(place: str) -> float:
    """Every digit counts, and the order of members."""
    return 0.0


def nearly(place: str) -> float:
    """How far apart numbers may be that other machines compute."""
    corpus, _, section, *name = place.split("/")
    if corpus != "everything" or section != "answers":
        return NEAR
    return 200 * NEAR if name[0].startswith(CODED) else 10 * NEAR


def differences(
    wanted: Any,
    found: Any,
    tolerance: Tolerance,  # place -> how far numbers with a fraction may be apart there
    place: str,  # what is compared, as corpus/state/section/name and so on
) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        compare = _hits if place.endswith("/hits") and tolerance is not exact else _members
        yield from compare(wanted, found, tolerance, place)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, pair in enumerate(zip(wanted, found, strict=True)):
            yield from differences(*pair, tolerance, f"{place}/{number}")
    elif isinstance(wanted, float) and isinstance(found, float):
        if abs(wanted - found) > tolerance(place):
            yield f"{place}: {wanted} became {found}"
    elif type(wanted) is not type(found) or wanted != found:
        yield f"{place}: {wanted!r:.{SHOWN_CHARS}} became {found!r:.{SHOWN_CHARS}}"


def _members(wanted: Json, found: Json, tolerance: Tolerance, place: str) -> Iterator[str]:
    for name in [*wanted, *(name for name in found if name not in wanted)]:
        here = f"{place}/{name}"
        if name in found and name in wanted:
            yield from differences(wanted[name], found[name], tolerance, here)
        else:
            yield f"{here}: {'is gone' if name in wanted else 'is new'}"
    if tolerance is exact and wanted.keys() == found.keys() and list(wanted) != list(found):
        yield f"{place}: members in another order"


def _hits(wanted: Json, found: Json, tolerance: Tolerance, place: str) -> Iterator[str]:
    """Ids and scores, best first; those whose scores are nearly the same may change places, also across the end."""
    if len(wanted) != len(found):
        yield f"{place}: {list(wanted)} became {list(found)}"
        return
    last = min(wanted.values(), default=0.0)
    for rank, (old, new) in enumerate(zip(wanted, found, strict=True), 1):
        if abs(wanted[old] - found[new]) > tolerance(place):
            yield f"{place}: at rank {rank}, {old} with {wanted[old]} became {new} with {found[new]}"
        elif old != new and abs(wanted.get(new, last) - wanted[old]) > tolerance(place):
            yield f"{place}: at rank {rank}, {old} became {new}, and their scores differ"


STATES = ("built", "changed", "compacted")
AS_BEFORE = "="
"""Stands for what the state before has under the same name."""
_FLOATS = re.compile(
    r"(delta/)?(vectors\.faiss|states/(codes|scales)\.npy|learned(-words)?/.*\.npy"
    r"|impacts/(impacts|maxima)\.npy|learned/impacts\.json)"
)
_MACHINES = ("providers", "search_threads", "settings", "workers", "device", "name")
"""Members of `/info` that are about the service or the machine, not about the index."""
DIGITS, SHOWN_ENTRIES, SHOWN_NUMBERS = 6, 4, 4


def portable(found: Json) -> Json:
    """Of one corpus, as `whole` gives it: state -> section -> name -> what is compared."""
    return {state: _state(found[state]) for state in STATES}


def _state(state: Json) -> Json:
    info = {name: each for name, each in state["info"].items() if name not in _MACHINES}
    manifest = {**state["manifest"], "parents": list(state["manifest"]["parents"])}  # their files are below
    report = state["report"].items()
    # What a build prints is little more than its report.
    printed = {
        name: {member: value for member, value in each.items() if (member, value) not in report}
        for name, each in state["printed"].items()
    }
    return {
        "files": {name: _file(name, each) for name, each in state["files"].items()},
        "manifest": _without_head(manifest),
        "report": _without_head(state["report"]),
        "printed": _without_head(printed),
        "info": _without_head({**info.pop("index"), **info}),
        "answers": {name: _answer(name, each) for name, each in state["answers"].items()},
    }


def _file(name: str, found: Json) -> str:
    if name.endswith(ROWS):
        return f"rows {found['rows'][:16]}"
    size = str(found["bytes"])
    return size if _FLOATS.fullmatch(name) else f"{size} {found['sha256'][:16]}"


def _without_head(value: Any) -> Any:
    """Numbers rounded; without the hash of the head, which the version of torch that wrote it decides."""
    if isinstance(value, dict):
        is_head = isinstance(value.get("learned"), str)
        return {
            name: _without_head(each) for name, each in value.items() if not (is_head and name == "learned")
        }
    return _rounded(value)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def _answer(name: str, found: Json) -> Json:
    if found["status"] != 200:
        return {member: found[member] for member in ("status", "code", "detail")}
    if "data" in found:
        return {"vectors": [_rounded(each["embedding"][:SHOWN_NUMBERS]) for each in found["data"]]}
    if "hits" not in found:
        return {member: found[member] for member in ("fields", "metadata")}
    hits = {hit["id"]: _rounded(hit["score"]) for hit in found["hits"]}
    body = SEARCHES[name]
    # Columns and words give the same order everywhere.
    is_ordered = "sort" in body or body.get("retriever") == "lexical"
    shown: Json = {"ordered": [list(hit) for hit in hits.items()]} if is_ordered else {"hits": hits}
    if "facets" in found:
        shown["facets"] = {field: _facet(each) for field, each in found["facets"].items()}
    if "corrected" in found["query"]:
        shown["corrected"] = found["query"]["corrected"]["text"]
    if found["hits"] and "explanation" in found["hits"][0]:
        first = found["hits"][0]
        shown["why"] = {member: _entries(each) for member, each in first["explanation"].items()}
        shown |= {member: first[member] for member in ("highlights", "passage") if member in first}
    return shown


def _facet(found: Json) -> list[Any]:
    pairs = [[each["value"], each["count"]] for each in found["values"]]
    return [found["counted"], found["approximate"], *pairs]


def _entries(found: list[Json]) -> list[Any]:
    """How many there are, and the values of the first of them."""
    return [len(found), *(_rounded(list(each.values())) for each in found[:SHOWN_ENTRIES])]


def spread(states: Json) -> Json:
    """Without `AS_BEFORE`: each state whole."""
    found: Json = {}
    before: Json = {}
    for state, sections in states.items():
        found[state] = before = {
            section: {
                name: before[section][name] if each == AS_BEFORE else each for name, each in members.items()
            }
            for section, members in sections.items()
        }
    return found


def kept(states: Json) -> Json:
    """The other way round: what is as before is not said again."""
    found: Json = {}
    before: Json = {}
    for state, sections in states.items():
        found[state] = {
            section: {
                name: AS_BEFORE if name in (old := before.get(section, {})) and old[name] == each else each
                for name, each in members.items()
            }
            for section, members in sections.items()
        }
        before = sections
    return found


def load(path: Path) -> Json:
    return spread(json.loads(path.read_bytes()))


def save(path: Path, states: Json) -> None:
    """Writes one member of a section on each line."""
    parts = []
    for state, sections in kept(states).items():
        written = []
        for section, members in sections.items():
            lines = ",\n".join(f"   {_json(name)}: {_json(each)}" for name, each in members.items())
            written.append(f"  {_json(section)}: {{\n{lines}\n  }}")
        parts.append(f" {_json(state)}: {{\n" + ",\n".join(written) + "\n }")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
