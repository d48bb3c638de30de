"""What is the science guest's own, beside the program that both Python guests have."""
