"""For operators: audit log, metrics, the change bus and task groups."""
