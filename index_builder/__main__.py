"""`python -m index_builder`."""

from glow_index_builder.commands import app

if __name__ == "__main__":
    app(prog_name="index_builder")
