"""`glow` without the start of an interpreter, for pages with many commands: forks of a process that has imported all of them.

    python -m tests.docs.forks FOLDER

`FUNCTION`, in bash, writes who calls to FOLDER, and reads the exit code from there. A service keeps a process of its own.
"""

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from glow.cli import COMMANDS, main

FUNCTION = r"""
glow() {
  case $1 in serve | ingest) command glow "$@"; return ;; esac
  env -0 > "$FORKS/environment"
  printf '%s\0' "$BASHPID" "$PWD" "$@" > "$FORKS/request"
  local code; read -r code < "$FORKS/code"; return "$code"
}
"""


def serve(folder: Path) -> None:
    for command in COMMANDS.values():
        with suppress(ImportError):
            import_module(command.target.partition(":")[0])
    os.mkfifo(folder / "code")
    os.mkfifo(folder / "request")
    while True:
        caller, place, *arguments = (folder / "request").read_text(encoding="utf-8").split("\0")[:-1]
        child = os.fork()
        if child == 0:
            run(folder, caller, place, arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        (folder / "code").write_text(f"{code}\n")


def run(folder: Path, caller: str, place: str, arguments: list[str]) -> None:
    """As the caller's own child; appends to its files, whose ends move."""
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(f"/proc/{caller}/fd/{number}", mode), number)
    os.chdir(place)
    os.environ.clear()
    variables = (folder / "environment").read_text(encoding="utf-8").split("\0")[:-1]
    os.environ.update(variable.split("=", 1) for variable in variables)
    sys.argv = ["glow", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
