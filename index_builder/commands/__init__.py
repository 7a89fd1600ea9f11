"""The builder's commands, one file for each family; `glow.cli` lists them."""
