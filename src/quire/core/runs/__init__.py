"""Running cells: the queue, a run under way, its record and its text for the model."""
