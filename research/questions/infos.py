"""Reads the nodes of a GNU Info file."""

import re

from research.debian.pair import collapsed
from research.questions.part import Part, plain_heading

__all__ = ["info_parts"]

_NODE = re.compile(r"^File: [^\n]*?Node: ([^,\n]+)(?:[^\n]*?Up: ([^,\n]+))?[^\n]*\n", re.MULTILINE)
_HEADING = re.compile(r"^(\S[^\n]*)\n([=*\-.])\2{2,}\n", re.MULTILINE)
_MENU = re.compile(r"^\* Menu:.*", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(r"\*[Nn]ote\s+([^:]+)::")


def info_parts(source: str, page: str) -> list[Part]:
    """A part for each node, with the headings of the nodes above it; without menus.

    Args:
        source: the file.
        page: name of the page; references to its other nodes are links.
    """
    nodes: dict[str, Part] = {}
    for text in source.split("\x1f\n")[1:]:
        node = _NODE.match(text)
        if node is None:
            continue
        body = _MENU.sub("", text[node.end() :])
        heading = _HEADING.search(body)
        title = plain_heading(heading[1] if heading else node[1])
        above = nodes.get(collapsed(node[2] or ""))
        links = [(page, collapsed(name)) for name in _REFERENCE.findall(body)]
        words = _REFERENCE.sub(r"\1", body[heading.end() :] if heading else body)
        parents = [*above.parents, above.heading] if above else []
        nodes[collapsed(node[1])] = Part(page, title, parents, [collapsed(node[1])], links, collapsed(words))
    return list(nodes.values())
