"""Commands of the program, one module for each, named as the command."""
