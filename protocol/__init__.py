"""What is said: records, events, commands, errors, and the pure functions over them.

Nothing here does I/O, knows trio, or imports anything of ours from another folder, so that every rule
written here can be tested, rendered and reused (by clients, stores and simulations) as plain data.
"""
