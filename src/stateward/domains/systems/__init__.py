"""Systems: trees of services, deployed and torn down under intention locks."""
