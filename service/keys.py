"""`python -m service.keys`, the former name of `glow key`."""

import typer

from glow_service.commands.key import key_command

if __name__ == "__main__":
    typer.run(key_command)
