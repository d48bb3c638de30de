"""How a tool with JSON Schemas is shown in Python: names, signatures, documentation, search. Standard library only."""
