"""The web UI: pages made here, over the same use cases and lists as the REST API, for people with a browser.

Nothing on a page comes from anywhere else, no script is written into a page, and every write carries a token that only
our own pages hold. Without JavaScript everything works but the live view, which then is as fresh as its loading.
"""
