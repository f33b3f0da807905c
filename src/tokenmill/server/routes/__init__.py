"""One file per group of addresses; each has a list `routes`."""
