"""What the engine must be like, as plain data that the rules compare it with."""
