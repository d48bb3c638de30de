"""Rights that a process gives up for good, each by a call of Linux's: for whatever of ours runs code of others."""
