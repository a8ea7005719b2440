"""The rules of tuning as pure values: no clock, network, database, logging or hidden randomness."""
