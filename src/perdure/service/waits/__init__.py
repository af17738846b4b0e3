"""When waiting jobs will start, told every few minutes while the service runs, and held against what came."""
