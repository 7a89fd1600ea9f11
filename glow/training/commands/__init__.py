"""The commands of training, a file for each family; `glow.commands.verbs` names them."""
