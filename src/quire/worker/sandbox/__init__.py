"""The sandbox layers that a worker applies to itself before it runs a cell."""
