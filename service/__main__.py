"""`python -m service`, the former name of `glow serve`."""

import typer

from glow_service.commands.serve import serve_command

if __name__ == "__main__":
    typer.run(serve_command)
