"""The Linux layers a Python kernel is put under: what this machine can give, what is planned, what the server does."""
