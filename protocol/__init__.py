"""The protocol: records, events, commands, errors, and pure functions over them.

Nothing here does I/O, uses trio, or imports another folder of Greenroom. So clients, stores and simulations
can use every rule written here, and tests need no engine.
"""
