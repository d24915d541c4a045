"""Programs of tenants on a host, as processes or containers: started, found, watched, limited and ended."""
