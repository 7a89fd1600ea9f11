"""Generates typos, to measure their effect and to train against them."""

from random import Random

from glow.text.lexical import is_lexical

__all__ = ["misspell", "misspell_in"]

LEAST_LETTERS = 4
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Rows of a keyboard: a wrong key is a neighbor in the row."""


def misspell(word: str, chance: Random) -> str:
    """A word with one typo that changes it: a letter is deleted, doubled, replaced by a neighboring key, or swapped with the next.

    Args:
        word: with at least two distinct lower-case letters.
        chance: chooses place and kind, with equal probabilities.
    """
    while True:
        at = chance.randrange(len(word))
        kind = chance.choice(("left out", "doubled", "beside", "swapped"))
        if kind == "left out":
            misspelled = word[:at] + word[at + 1 :]
        elif kind == "doubled":
            misspelled = word[: at + 1] + word[at:]
        elif kind == "beside":
            misspelled = word[:at] + chance.choice(_beside(word[at])) + word[at + 1 :]
        else:
            misspelled = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
        if misspelled != word:
            return misspelled


def misspell_in(text: str, chance: Random) -> str:
    """A text with a typo in one content word of four letters or more; unchanged without such a word."""
    words = text.split(" ")
    places = [
        at
        for at, word in enumerate(words)
        if len(word) >= LEAST_LETTERS and word.isascii() and word.isalpha() and is_lexical(word.lower())
    ]
    if places:
        at = chance.choice(places)
        words[at] = misspell(words[at].lower(), chance)
    return " ".join(words)


def _beside(letter: str) -> str:
    for row in ROWS:
        at = row.find(letter)
        if at >= 0:
            return row[max(at - 1, 0) : at] + row[at + 1 : at + 2]
    return letter
