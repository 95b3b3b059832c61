"""dtoolkit."""
