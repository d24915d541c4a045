"""Multi-cloud infrastructure: groups of VMs over many providers and regions, controlled as one."""
