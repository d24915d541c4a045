"""Secrets of a namespace: encrypted values that definitions refer to by name, and that only instances get."""
