"""The local stack: real servers, a real proxy, a real database and an emulated GPU on one machine.

Nothing outside this package knows how these processes are obtained, started or stopped; the rest of the
service sees the same addresses it would be given by an operator.
"""
