"""Ways to run code; each implements the core's Runtime."""
