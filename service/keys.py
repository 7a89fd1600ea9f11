"""`python -m service.keys`, as it was called before `glow key`."""

import typer

from glow_service.commands.key import key_command

if __name__ == "__main__":
    typer.run(key_command)
