"""Guards of the ovc kinds: they check a request, and change related objects, inside the accepting transaction."""
