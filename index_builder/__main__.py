"""`python -m index_builder`: the builder's commands under their old names."""

from glow_index_builder.commands.app import app

if __name__ == "__main__":
    app(prog_name="index_builder")
