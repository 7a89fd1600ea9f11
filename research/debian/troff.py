"""Extracts plain text of manual page sources (man and mdoc macros) by stripping, without typesetting."""

import re
from collections.abc import Iterator

Sections = dict[str, str]
"""Upper-case heading -> text, with empty lines between paragraphs."""

_GLYPHS = {
    "aq": "'", "cq": "'", "oq": "'", "dq": '"', "lq": '"', "rq": '"', "em": " - ", "en": "-", "hy": "-", "mi": "-",
    "ha": "^", "ti": "~", "ga": "`", "rs": "\\", "bu": "", "co": "(c)", "ge": ">=", "le": "<=", "mu": "x", "+-": "+-",
    "->": "->", "<-": "<-", "at": "@", "sh": "#", "Do": "$", "bv": "|", "ba": "|", "lB": "[", "rB": "]", "tm": "",
    "mc": "u", "*m": "u", "de": " degrees", "12": "1/2", "14": "1/4", "pl": "+", "eq": "=", "fo": "<", "fc": ">",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:"
    r"f(?:\[[^]]*\]|\(..|.)|F(?:\[[^]]*\]|\(..|.)|m\[[^]]*\]|s[-+]?(?:\[[^]]*\]|'[^']*'|\d{1,2})|"
    r"[hvwlLbDHSXNoZ]'[^']*'|[kngMY](?:\[[^]]*\]|\(..|.)|"
    r"\*(?P<string>\[[^]]*\]|\(..|.)|\((?P<two>..)|\[(?P<long>[^]]*)\]|(?P<one>.))",
    re.DOTALL,
)
_ONE = {**{mark: mark for mark in "-\\'`_."}, **dict.fromkeys(" ~0t", " "), "e": "\\"}
_STRINGS = {"lq": '"', "rq": '"', "(lq": '"', "C'": '"', "C`": '"', "--": " - ", "R": "(R)", "Tm": ""}
_BREAKS = frozenset("SS PP P LP IP TP HP br sp RS RE Pp TQ It Bl El in ti".split())
_SPACED = frozenset("B I SM SB R UR".split())
_JOINED = frozenset("BR RB IR RI BI IB".split())
_SKIP_UNTIL = {
    "nf": {"fi"}, "EX": {"EE"}, "TS": {"TE"}, "PS": {"PE"}, "EQ": {"EN"}, "de": {".", ".."}, "ig": {".", ".."},
    "Vb": {"Ve"}, "am": {".", ".."}, "SY": {"YS"},
}  # fmt: skip
_MDOC_INLINE = frozenset(
    "Nm Ar Fl Pa Li Em Sy Ql Cm Va Fn Fa Ft Dv Ev Ic Xr Op Oo Oc Dq Sq Pq Aq Bq Qq Do Dc So Sc Po Pc Ad An Tn Ux Bx "
    "Fx Nx Ox At St Er Vt Cd Lk Mt No Ns Ap D1 Dl Sx Rs Re Xo Xc Brq Bro Brc Ms Eo Ec Bo Bc Qo Qc Ao Ac Tg".split()
)  # fmt: skip
_MDOC_NAMES = {"Ux": "UNIX", "Bx": "BSD", "Fx": "FreeBSD", "Nx": "NetBSD", "Ox": "OpenBSD", "At": "AT&T UNIX"}
_MDOC_QUOTES = {
    **dict.fromkeys(("Dq", "Qq"), '""'), **dict.fromkeys(("Sq", "Ql"), "''"), **dict.fromkeys(("Bq", "Op"), "[]"),
    "Pq": "()", "Aq": "<>",
}  # fmt: skip


def sections(source: str) -> Sections:
    """Splits a page into its sections as plain text; drops literal blocks, tables and macro definitions.

    Args:
        source: troff source with man or mdoc macros.
    """
    found: dict[str, list[str]] = {}
    heading, name = "", ""
    for line in _lines(source):
        macro, arguments = _request(line)
        if macro in ("SH", "Sh"):
            heading = _plain(" ".join(_split(arguments))).strip().upper()
            found.setdefault(heading, [])
            continue
        if macro == "Nm" and not name and arguments:
            name = _split(arguments)[0]
        text = line if macro is None else _macro_text(macro, arguments, name)
        found.setdefault(heading, []).append(text)
    return {heading: _plain("\n".join(lines)) for heading, lines in found.items()}


def _lines(source: str) -> Iterator[str]:
    """Lines with text, without comments, conditions and literal blocks."""
    waiting: set[str] = set()
    for line in source.replace("\\\n", "").splitlines():
        macro = (_request(line)[0] or "") if line[:1] in ".'" else ""
        if waiting and macro not in waiting and macro not in ("SH", "Sh"):
            continue
        if waiting and macro in waiting:
            waiting = set()
            continue
        waiting = _SKIP_UNTIL.get(macro, set())
        if macro == "Bd":
            waiting = {"Ed"} if re.search(r"-(literal|unfilled)", line) else set()
        if waiting or re.match(r"[.']\s*\\?[\"#]|['.]\s*\\\"", line):
            continue
        yield re.sub(r"\\[\"#].*", "", line)


def _request(line: str) -> tuple[str | None, str]:
    """Macro name and its arguments; None for a line of text."""
    if line[:1] not in (".", "'") or line[:3] == "...":
        return None, line
    name, _, arguments = line[1:].lstrip().partition(" ")
    return name.strip(), arguments.strip()


def _macro_text(macro: str, arguments: str, name: str) -> str:
    parts = _split(arguments)
    if macro == "Nd":
        return "\\- " + " ".join(parts)
    if macro in _SPACED:
        return " ".join(parts)
    if macro in _JOINED:
        return "".join(parts)
    if macro in _MDOC_INLINE:
        return _mdoc([macro, *parts], name)
    return "\n\n" if macro in _BREAKS else ""


def _mdoc(parts: list[str], name: str) -> str:
    """Text of a line of mdoc macros, which call one another by name."""
    if parts == ["Nm"]:
        return name
    words: list[str] = []
    glued, flag, closing = False, False, ""
    for index, part in enumerate(parts):
        if part in _MDOC_INLINE:
            flag = part == "Fl"
            glued = glued or part in ("Ns", "Ap")
            word = "'" if part == "Ap" else _MDOC_NAMES.get(part, "")
            if part == "Nm" and (index + 1 == len(parts) or parts[index + 1] in ",.;:)"):
                word = name
            if part in _MDOC_QUOTES:
                closing = _MDOC_QUOTES[part][1] + closing
                words.append(_MDOC_QUOTES[part][0])
                glued = True
            if not word:
                continue
        else:
            word = "-" + part if flag and part not in ",.;:)" else part
        if index >= 2 and parts[index - 2] == "Xr" and part.isalnum():
            word, glued = f"({part})", True
        if words and (glued or word in (",", ".", ";", ":", ")", "?", "!")):
            words[-1] += word
        else:
            words.append(word)
        glued = word == "'" or word == "("
    if closing and words:
        end = re.search(r"[,.;:]$", words[-1])
        words[-1] = words[-1][:-1] + closing + end[0] if end else words[-1] + closing
    return " ".join(words)


def _split(arguments: str) -> list[str]:
    """Arguments of a macro; quotes hold words together."""
    return [
        quoted.replace('""', '"') or bare
        for quoted, bare in re.findall(r'"((?:[^"]|"")*)"?|(\S+)', arguments)
    ]


def _plain(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", _ESCAPE.sub(_escape, text))


def _escape(match: re.Match[str]) -> str:
    if string := match["string"]:
        return _STRINGS.get(string.lstrip("(").strip("[]"), "")
    if glyph := match["two"] or match["long"]:
        if unicode := re.fullmatch(r"u([0-9A-Fa-f]{4,6})", glyph):
            return chr(int(unicode[1], 16)) if int(unicode[1], 16) < 0x110000 else ""
        return _GLYPHS.get(glyph, glyph[0] if len(glyph) == 2 and glyph[0].isalpha() else "")
    return _ONE.get(match["one"] or "", "")
