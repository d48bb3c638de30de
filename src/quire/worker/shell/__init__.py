"""Shell commands, script magics, and loading IPython."""
