"""Route handlers of the Tumblebug API and of the native API."""
