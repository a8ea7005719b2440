"""What the product says about itself while it runs: logs, metrics and traces."""
