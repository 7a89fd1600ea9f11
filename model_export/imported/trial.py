"""Tries a tokenizer that others made, as a process of its own: what it does to that process, it does not do to the command.

    python -P trial.py TOKENIZER

The library that reads it may panic, hang or take all memory. Here it has seconds and megabytes by the size of the file. What is wrong
goes to standard output, and the exit status is 1; a process that was ended says nothing. It imports nothing of GLOW.
"""

import resource
import sys
from contextlib import suppress
from pathlib import Path

from tokenizers import Tokenizer

SECONDS, SECONDS_PER_MB = 5, 1
MB, MB_PER_MB = 512, 64
"""250,000 pieces take 17 MB of file."""
PIECES_OF_BYTE, AROUND = 4, 16
TEXTS = (
    "",
    "how do bees find their way home? A naïve café, 東京 \U0001f41d \ufffd\U0010fffd",
    "  Tabs\t\tand\nlines, 2nd HDMI-port; don't </s> [CLS] _x_ \u200b\u0301 ",
    "word " * 200,
    "a" * 2_000,
    "?!" * 500,
)


def main(path: str) -> str:
    """Reads the tokenizer and spells texts; what is wrong, or nothing."""
    megabytes = (Path(path).stat().st_size >> 20) + 1
    seconds = SECONDS + SECONDS_PER_MB * megabytes
    size = (MB + MB_PER_MB * megabytes) << 20
    for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # not every system lets a process bound its memory
            resource.setrlimit(what, (most, most))
    try:
        tokenizer = Tokenizer.from_file(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        for text in TEXTS:
            for marks in (True, False):
                found = len(tokenizer.encode(text, add_special_tokens=marks).ids)
                if found > PIECES_OF_BYTE * len(text.encode()) + AROUND:
                    return f"it makes {found} pieces of a text of {len(text.encode())} bytes"
            tokenizer.encode_special_tokens = not tokenizer.encode_special_tokens
    except BaseException as error:  # the library's panics are no Exception
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


if __name__ == "__main__":
    wrong = main(sys.argv[1])
    sys.stdout.write(wrong)
    sys.exit(1 if wrong else 0)
