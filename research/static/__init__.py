"""What word weights are worth to a query tower without layers."""
