"""What the engine costs: against bare SQL that writes the same rows, and against other durable engines."""
