"""`glow key`: makes an API key, the admin key, or the write key."""

from glow.commands import command, option, say
from glow.options import StrictModel
from glow_service.access import make_key

__all__ = ["KeyOptions", "key_command"]


class KeyOptions(StrictModel):
    """Options of `glow key`."""

    name: str = option("", "Name of the key, as logs show it.", is_argument=True, metavar="[NAME]")
    admin: bool = option(False, "Make the key for /admin, which has no name.")
    write: bool = option(False, "Make the key for writing documents, which has no name.")


@command(KeyOptions)
def key_command(options: KeyOptions) -> None:
    """Makes a key and prints it once; settings need only its hash."""
    key, entry = make_key(options.name, is_admin=options.admin, is_write=options.write)
    where = (
        "the setting"
        if options.admin or options.write
        else "an entry of GLOW_API_KEYS (entries are separated by commas)"
    )
    say(f"key for the client, shown only once:\n{key}\n{where}:\n{entry}")
