"""Where the instances of services run."""
