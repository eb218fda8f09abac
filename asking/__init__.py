"""A trained agent in use: questions about documents of any length, read, remembered and answered while one watches."""
