"""Commands and files on VMs over SSH: keys, ways to VMs, runs, and their results."""
