"""The commands of evaluation, a file for each family; `glow.commands.verbs` names them."""
