"""States to go back to: checkpoints in memory and snapshots on disk."""
