"""`python -m index_builder`, as it was called before `glow`."""

from glow_index_builder.commands.app import app

if __name__ == "__main__":
    app(prog_name="index_builder")
