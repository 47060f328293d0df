"""Adapters to other projects, one file for each; an extra installs the project."""
