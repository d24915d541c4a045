"""The five domains, each a folder that reads like the design it implements."""
