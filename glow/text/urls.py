"""Words of a URL: split at punctuation, digits dropped, run-together words cut (BISON appendix B.2).

The released code does not split URLs. B.2 drops digits, but GLOW's Table 4 shows "10914205" and "27s", so
keeping them is an option.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

__all__ = ["url_runs", "url_words"]

MAX_URL_CHARACTERS = 1024
# wordninja tries every cut; longer runs are ids and hashes, without words.
MAX_RUN_CHARACTERS = 48
# Hosts and directories recur in a corpus, and a cut costs ten times a look-up.
CACHED_RUNS = 50_000
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")
_SEPARATORS = re.compile(r"[\W_]+")
_RUNS = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")


def url_words(url: str, *, keep_digits: bool = False) -> str:
    """The words of a URL as plain text, in order, separated by spaces.

    Args:
        url: any string; the scheme is dropped, %-escapes are read as UTF-8.
        keep_digits: keep runs of digits as separate words (Table 4).

    Returns:
        "docs python org library heap q" for "https://docs.python.org/3/library/heapq.html"; "" if nothing is left.
    """
    plain = unquote(_SCHEME.sub("", url[:MAX_URL_CHARACTERS]))
    if not keep_digits:
        plain = _DIGITS.sub(" ", plain)
    words: list[str] = []
    for run in _SEPARATORS.split(plain):
        words.extend(_cut(run))
    return " ".join(words)


def url_runs(url: str, *, keep_digits: bool = False) -> Iterator[tuple[str, int]]:
    """The words of a URL with their positions in it, for highlighting; %-escapes are not decoded.

    Args:
        url: any string; the scheme is skipped.
        keep_digits: as for `url_words`.

    Yields:
        A word as in the URL, and its start.
    """
    scheme = _SCHEME.match(url)
    for match in (_RUNS if keep_digits else _LETTERS).finditer(
        url, scheme.end() if scheme else 0, MAX_URL_CHARACTERS
    ):
        words, start = _cut(match[0]), match.start()
        for word in words if "".join(words) == match[0] else (match[0],):
            yield word, start
            start += len(word)


@lru_cache(maxsize=CACHED_RUNS)
def _cut(run: str) -> tuple[str, ...]:
    if not run or not run.isascii() or len(run) > MAX_RUN_CHARACTERS:
        return (run,) if run else ()
    import wordninja  # its word list takes 50 ms to load, which models without a url field avoid

    return tuple(wordninja.split(run))
