"""The model: the state that the engine must be in, as plain data that the rules compare the engine with."""
