"""Records of the generic API: pure data, shared by the server, the domains and the command line."""
