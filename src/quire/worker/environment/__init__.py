"""The environment of cells: packages, pip, hidden variables and blocked hosts."""
