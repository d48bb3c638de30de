"""Messages between server and worker, and the frames that carry them. Standard library only."""
