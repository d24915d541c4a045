"""The rules of the domain, one file for each kind: checked, and carried out, inside the accepting transaction."""
