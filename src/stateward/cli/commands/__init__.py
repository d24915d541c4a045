"""Commands of the program; commands that share their options share a module."""
