"""The demonstration workload: small real programs that really run and really fail."""
