"""Tries a third-party tokenizer in a separate process, which protects the command.

    python -P trial.py TOKENIZER

The tokenizer library may panic, hang or take all memory, so time and memory are limited by the size of the file. A fault
is printed to standard output, with exit status 1; a killed process prints nothing. This module imports nothing of GLOW.
"""

import resource
import sys
from contextlib import suppress
from pathlib import Path

from tokenizers import Tokenizer

SECONDS, SECONDS_PER_MB = 5, 1
MB, MB_PER_MB = 512, 64
"""250,000 tokens take 17 MB of file."""
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
    """Reads the tokenizer and encodes texts; returns the fault, or an empty text."""
    megabytes = (Path(path).stat().st_size >> 20) + 1
    seconds = SECONDS + SECONDS_PER_MB * megabytes
    size = (MB + MB_PER_MB * megabytes) << 20
    for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # not every system supports these limits
            resource.setrlimit(what, (most, most))
    try:
        tokenizer = Tokenizer.from_file(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        for text in TEXTS:
            for marks in (True, False):
                count = len(tokenizer.encode(text, add_special_tokens=marks).ids)
                if count > PIECES_OF_BYTE * len(text.encode()) + AROUND:
                    return f"it makes {count} pieces of a text of {len(text.encode())} bytes"
            tokenizer.encode_special_tokens = not tokenizer.encode_special_tokens
    except BaseException as error:  # the library's panics are not of type Exception
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


if __name__ == "__main__":
    wrong = main(sys.argv[1])
    sys.stdout.write(wrong)
    sys.exit(1 if wrong else 0)
