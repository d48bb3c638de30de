"""The Python guest's own program: the worker as far as WebAssembly allows, built into a component, never imported.

Modules of `in_place` are put where the worker has one of the same name that needs an operating system.
"""
