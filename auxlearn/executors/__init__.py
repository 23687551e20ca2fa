"""Engines that run jobs in processes of their own: of this machine, by Ray, by SLURM."""
