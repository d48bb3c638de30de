"""Ways to keep state; each implements the core's Store or Blobs."""
