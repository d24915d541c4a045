"""What things cost: each module here has `report()`, which measures and returns lines to print."""
