"""From a text to a validated document, or to everything that is wrong with it."""
