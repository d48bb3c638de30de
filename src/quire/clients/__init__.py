"""Other programs' protocols, ignorant of our core."""
