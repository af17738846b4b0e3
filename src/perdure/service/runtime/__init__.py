"""The processes of the service: that of one cluster, and a controller with its share of many clusters."""
