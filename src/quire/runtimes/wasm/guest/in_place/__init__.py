"""Modules put where the worker has others of the same name."""
