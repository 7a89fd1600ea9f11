"""The commands of the builder, a file for each family; `glow.commands.verbs` names them."""
