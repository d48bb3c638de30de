"""Programs that are obtained or made by package name, never committed: each checked before it is used."""
