"""Policies: demand, autoscaling, auto-provisioning, and the reservation of clusters."""
