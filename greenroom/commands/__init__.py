"""The commands of the command line, a module per group; `greenroom.cli` is their front door."""
