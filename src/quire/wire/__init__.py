"""What worker and parent say to each other: words (messages) and bytes (frames). Standard library only."""
