"""What the drivers of clouds share: how a failed call becomes an outcome, and what is the same at every provider."""
