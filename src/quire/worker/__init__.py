"""The child program: runs cells in one namespace and reports over the wire. Standard library only."""
