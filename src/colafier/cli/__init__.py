"""The command line, a thin layer over `workflows`: one file for each group of commands."""
