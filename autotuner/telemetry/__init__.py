"""What the product says about itself while it runs: logs."""
