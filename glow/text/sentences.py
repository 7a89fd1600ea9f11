"""Finds sentence ends by simple rules for many scripts, good enough to split long texts.

A mark ends a sentence if white space and no lower-case letter follows it, and if it does not belong to an
abbreviation, initial or list number. Ideographic marks end a sentence anywhere, blank lines and bullets without
a mark. A missed end costs little: passages (glow/text/passages.py) only prefer these places to others.
"""

import re

__all__ = ["BLANKS", "sentence_spans"]

BLANKS = " \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space in BERT's splitting, as a class of regular expressions; other controls join their neighbors."""
_TOKEN = re.compile(f"[^{BLANKS}]+")
_CLOSERS = "\"')]}»”’」』）】》"
_OPENERS = "\"'([{«“‘¿¡「『（【《-–—*"
_ENDS = ".!?…।॥۔؟።"
_IDEOGRAPHIC_END = re.compile("[。！？｡]+[" + re.escape(_CLOSERS) + "]*")
_BULLETS = frozenset("•‣◦▪●■·")
_LINE_BULLETS = frozenset("-–—*+")
_LIST_NUMBER = re.compile(r"\(?(?:[0-9]{1,3}|[A-Za-z]|[ivx]{1,5})[.)]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st mt rev gen sgt col lt capt hon gov sen rep messrs vs cf al approx ca viz resp".split()
)
_BEFORE_NUMBERS = frozenset("no nos fig figs vol vols p pp eq eqs ch sec art ref refs".split())


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Splits a text into sentences, in time linear in its length.

    Args:
        text: any string.

    Returns:
        Starts and ends of sentences, in characters: in order, not overlapping, without white space around them, and
        together covering all other characters.
    """
    spans: list[tuple[int, int]] = []
    start = last_start = last_end = -1
    for token in _TOKEN.finditer(text):
        token_start, token_end = token.span()
        if start < 0:
            start = token_start
        elif _ends(text, start, (last_start, last_end), token_start, token[0]):
            spans.append((start, last_end))
            start = token_start
        last_start, last_end = token_start, token_end
        for mark in _IDEOGRAPHIC_END.finditer(text, token_start, token_end):
            spans.append((start, mark.end()))
            start = last_start = mark.end()
        if start == token_end:  # the mark was the token's last
            start = -1
    return spans if start < 0 else [*spans, (start, last_end)]


def _ends(text: str, start: int, last: tuple[int, int], token_start: int, token: str) -> bool:
    """Whether the sentence from `start` ends with its `last` token, before the next `token`."""
    gap = text[last[1] : token_start]
    lines = gap.count("\n") + gap.count("\u2029")
    if lines > 1 or token[0] in _BULLETS:
        return True
    if lines and (token in _LINE_BULLETS or _LIST_NUMBER.fullmatch(token)):
        return True
    word = text[last[0] : last[1]].rstrip(_CLOSERS)
    if not word or word[-1] not in _ENDS or token.lstrip(_OPENERS)[:1].islower():
        return False
    return word[-1] != "." or not _is_short(word.lstrip(_OPENERS), token, is_first=last[0] == start)


def _is_short(word: str, token: str, is_first: bool) -> bool:
    """Whether a word's final full stop marks an abbreviation, or a number in a list."""
    if _INITIALS.fullmatch(word) or (is_first and _LIST_NUMBER.fullmatch(word)):
        return True
    name = word[:-1].lower()
    return name in _ABBREVIATIONS or (name in _BEFORE_NUMBERS and token[0].isdigit())
