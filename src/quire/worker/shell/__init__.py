"""Shell commands, script magics, and loading IPython when it is needed."""
