"""The commands of the command line, one module per group; `greenroom.cli` lists them."""
