"""What the counters of gateways, servers and devices mean, whoever read them: a page directly, or a metrics server.

Both metrics sources give the same counts of the same scrape because both read it here; nothing in here reads a network.
"""
