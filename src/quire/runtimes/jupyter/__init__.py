"""Runtime for notebooks on Jupyter servers. Their code runs in the kernel of the document's session."""
