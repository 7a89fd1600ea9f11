"""`python -m index_builder`."""

from index_builder.cli import app

if __name__ == "__main__":
    app(prog_name="index_builder")
