"""Access to cloud providers: clients, their pool, evidence about VMs, the catalogue of what can be made, key pairs."""
