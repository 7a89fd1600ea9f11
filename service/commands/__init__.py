"""The commands of the service, a file for each; `glow.commands.verbs` names them, and imports one when it is used."""
