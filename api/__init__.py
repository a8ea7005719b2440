"""The REST API: requests in, use cases called, answers out; nothing is decided here.

`api.app.create` makes it from an `Application`; `api.server.serve` serves it. It never drives a study: it records what
an operator wishes, and the next tick of a worker obeys.
"""
