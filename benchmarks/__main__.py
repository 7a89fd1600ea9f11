"""`python -m benchmarks`: lists the benchmarks with their first lines."""

import ast
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Lists every module that can be run."""
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path != Path(__file__) and '__name__ == "__main__"' in text:
            name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts).removesuffix(".__main__")
            first = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
            sys.stdout.write(f"  python -m {name}\n      {first}\n")


if __name__ == "__main__":
    main()
