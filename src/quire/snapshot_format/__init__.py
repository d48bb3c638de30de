"""The files that snapshots consist of: chunks, manifests, drafts and recipes. Read and written by worker and server."""
