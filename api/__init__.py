"""The place of the REST API and its pages; handlers know operations, never adapters. No code yet."""
