"""The pages: each reads a request, calls what the REST API calls, and fills a template."""
