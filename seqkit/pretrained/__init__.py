"""Models of other libraries, read from their folders: settings as a recipe writes them, weights under our names."""
