"""Running a cell: parse, execute, history, errors and interrupts."""
