"""How fast a job runs where: step times, statistical efficiency, goodput, and what is unknown of a GPU type."""
