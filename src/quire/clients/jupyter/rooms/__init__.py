"""Rooms of jupyter-collaboration: replicas of shared documents, synchronized over a connection."""
