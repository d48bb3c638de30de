"""Collaboration rooms: shared documents, kept in step over a connection."""
