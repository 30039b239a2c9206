"""The rules of scheduling, under every command in every order and interleaving."""
