"""The routes: each reads a request, calls one use case or one list, and writes the answer."""
