"""Measurements of what the product promises in figures: targets, what is reached, and whether it meets them."""
