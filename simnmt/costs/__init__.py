"""Cost models and the device profile bundle."""
