"""What a cell's environment has: packages, pip, variables and reachable hosts."""
