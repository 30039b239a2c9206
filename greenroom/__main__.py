"""`python -m greenroom` is the command line."""

from .cli import main

main(prog_name="greenroom")
