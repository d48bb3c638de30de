"""Earlier states of a namespace: checkpoints in memory and snapshots on disk."""
