"""One edit of a word: a letter deleted, inserted or replaced, or two neighbors swapped.

Two words are one edit apart if they share a form with at most one letter deleted from each. So an index of such forms finds
every candidate by look-ups only (Garbe 2012, "1000x faster spelling correction", https://github.com/wolfgarbe/SymSpell).
"""

from zlib import crc32

__all__ = ["forms", "is_one_edit", "key_of"]


def forms(word: str) -> list[str]:
    """The word, and the word without each of its letters; each form once."""
    return list(dict.fromkeys([word, *(word[:at] + word[at + 1 :] for at in range(len(word)))]))


def key_of(form: str) -> int:
    """32-bit hash of a form; `is_one_edit` resolves collisions."""
    return crc32(form.encode("utf-8", "replace"))


def is_one_edit(a: str, b: str) -> bool:
    """Whether one edit turns a word into another; False for equal words."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    one, other = a[start:], b[start:]
    if len(one) != len(other):
        longer, shorter = (one, other) if len(one) > len(other) else (other, one)
        return longer[1:] == shorter
    is_swap = len(one) > 1 and one[0] == other[1] and one[1] == other[0] and one[2:] == other[2:]
    return one[1:] == other[1:] or is_swap
