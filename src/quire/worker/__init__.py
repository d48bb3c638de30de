"""The worker program: runs cells in one namespace and reports to the server. Standard library only."""
