"""The proposer's benchmark: workloads in, a table of how every proposer does on them out.

The system that is tuned here is simulated by code of its own (`truth`), which shares nothing with the grey-box model
that proposes: what the model assumes may be wrong here, as it may be on a real server.
"""
