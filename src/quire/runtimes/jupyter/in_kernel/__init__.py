"""Source that is sent to a Python kernel of a Jupyter server and held there in memory; never imported here."""
