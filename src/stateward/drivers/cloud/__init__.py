"""What the drivers of clouds share; the modules are named as in every driver."""
