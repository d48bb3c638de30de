"""System calls with which a process gives up rights: Landlock, seccomp, capabilities."""
