"""The REST API and its pages; handlers know operations, never adapters."""
