"""Open files and folders below a folder without following links. Code in that folder may be hostile."""
