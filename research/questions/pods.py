"""Reads sections and items of Perl's POD with their links."""

import re

from research.debian.pair import collapsed
from research.questions.part import Part

__all__ = ["pod_parts"]

_LINK = re.compile(r"L<(<*)\s*(.*?)\s*\1>", re.DOTALL)
_CODE = re.compile(r"[A-Z](?:<<+\s(.*?)\s>>+|<([^<>]*)>)", re.DOTALL)
_NAMED = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/"}
_ITEM_PAGES = ("perlfunc", "perlvar")
"""Pages whose items are functions and variables; elsewhere items are lists."""
_ITEM_LEVEL = 5


def pod_parts(source: str, page: str) -> list[Part]:
    """The parts of one POD file; its DESCRIPTION begins with the words of NAME, and is the target of the whole page.

    Args:
        source: the file; program text around the POD is ignored.
        page: its name in links, such as `perlfunc` or `File::Copy`.
    """
    found: list[Part] = []
    above: dict[int, str] = {}
    depth, is_pod, is_other = 0, False, False
    for block in re.split(r"\n[ \t]*\n", source):
        command = re.match(r"\s*=([a-z]\w*)\s*(.*)", block, re.DOTALL)
        if command:
            name, rest = command[1], command[2]
            is_pod = name != "cut"
            is_other = name == "begin" or (is_other and name != "end")
            depth += (name == "over") - (name == "back")
            level = int(name[4]) if re.fullmatch(r"head[1-4]", name) else 0
            if name == "item" and page in _ITEM_PAGES and depth == 1:
                level = _ITEM_LEVEL
            if level:
                _open(found, above, level, rest, page)
            elif name == "item" and found:
                _append(found[-1], rest)
        elif found and is_pod and not is_other and not block.lstrip("\n")[:1].isspace():
            _append(found[-1], block)
    return _without_name(found)


def _open(found: list[Part], above: dict[int, str], level: int, block: str, page: str) -> None:
    heading = collapsed(_plain(block))
    anchors = [heading, *re.findall(r"^[\w:]+", heading)[: level == _ITEM_LEVEL]]
    last = found[-1] if found else None
    if level == _ITEM_LEVEL and last and last.is_definition and not last.text:
        last.heading += f"; {heading}"
        last.anchors += anchors
        return
    for each in [each for each in above if each >= level]:
        del above[each]
    parents = [page, *(above[each] for each in sorted(above))]
    above[level] = heading
    part = Part(page, heading, parents, anchors, is_definition=level == _ITEM_LEVEL)
    found.append(part)


def _append(part: Part, block: str) -> None:
    part.links += [link for match in _LINK.finditer(block) if (link := _target(match[2], part.page))]
    part.text = f"{part.text} {collapsed(_plain(block))}".strip()


def _target(link: str, page: str) -> tuple[str, str] | None:
    """Page and heading of a link; None for a web address."""
    where = link.rpartition("|")[2] if not link.startswith(('"', "/")) else link
    if re.match(r"\w+:[^:\s]", where) or "(" in where.partition("/")[0]:
        return None
    name, _, heading = where.partition("/")
    return name.strip() or page, collapsed(_plain(heading)).strip('"')


def _plain(text: str) -> str:
    text = re.sub(r"E<(\w+)>", lambda match: _NAMED.get(match[1], ""), re.sub(r"[XZ]<[^>]*>", "", text))
    for _ in range(3):  # codes hold codes
        text = _CODE.sub(lambda match: _shown(match[1] or match[2] or ""), text)
    return text


def _shown(inside: str) -> str:
    shown, bar, _ = inside.partition("|")
    return shown if bar and shown else inside


def _without_name(found: list[Part]) -> list[Part]:
    if len(found) < 2 or found[0].heading != "NAME":
        return found
    name, *rest = found
    described = sorted(
        (part for part in rest if part.text and not part.is_definition),
        key=lambda part: part.heading != "DESCRIPTION",
    )
    if described:
        described[0].text = f"{name.text}. {described[0].text}"
        described[0].anchors += ["NAME", ""]
    for part in rest:
        part.parents[0] = name.text or name.page
    return rest
