"""`python -m colafier` is the command line."""

from colafier.cli import app

app(prog_name="colafier")
