"""One file per command: `<name>.py` defines `command`, and main finds it by its place."""
