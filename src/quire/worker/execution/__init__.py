"""Running cells: executor, event loop, history, errors and interrupts."""
