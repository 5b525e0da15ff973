#!/bin/bash
#SBATCH --job-name=ringfold
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --output=ringfold-%j.out
# Submit with: sbatch docs/examples/slurm_job.sh [SCRIPT [ARGUMENTS]]
set -euo pipefail

# The environment with Ringfold and an MPI, in a folder that all nodes see.
export PATH=${VENV:-$PWD/.venv}/bin:$PATH
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

# The environment's own mpirun asks Slurm which nodes there are and has it start them.
launch=(mpirun -n "$SLURM_NTASKS")

# Before the real work: is this allocation what it should be?
"${launch[@]}" ringfold doctor

"${launch[@]}" python "${@:-docs/examples/k_means.py}"
