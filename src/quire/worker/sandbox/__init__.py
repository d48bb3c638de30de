"""The layers a kernel's process is put under before it runs a cell: each a thin call of the system."""
