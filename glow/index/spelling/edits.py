"""One edit of a word: a letter left out, put in, exchanged for another, or two neighbours swapped.

Two words are one edit apart where they share a form with at most one letter left out of each, so an index of such forms finds
every candidate by look-ups alone (Garbe 2012, "1000x faster spelling correction", https://github.com/wolfgarbe/SymSpell).
"""

from zlib import crc32

__all__ = ["forms", "is_one_edit", "key_of"]


def forms(word: str) -> list[str]:
    """The word, and the word without each of its letters; each form once."""
    return list(dict.fromkeys([word, *(word[:at] + word[at + 1 :] for at in range(len(word)))]))


def key_of(form: str) -> int:
    """32 bits of a form; forms that share them are told apart by `is_one_edit`."""
    return crc32(form.encode("utf-8", "replace"))


def is_one_edit(a: str, b: str) -> bool:
    """Whether one edit makes a word of another; False for equal words."""
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
