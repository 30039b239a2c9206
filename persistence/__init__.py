"""What is remembered: the stores, and the files that runs write."""
