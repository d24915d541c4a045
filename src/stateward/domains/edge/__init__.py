"""Edge: clusters, apps and cloudlets, worked by remote agents."""
