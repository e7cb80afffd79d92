"""`python -m colafier` is the command line."""

from colafier.cli.app import app

app(prog_name="colafier")
