"""Who runs the cases of a sweep: processes of this machine, a Dask cluster, jobs of the site's Slurm."""
