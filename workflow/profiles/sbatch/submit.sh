#!/bin/sh
# Submit a job script with the given options of sbatch, and print the job's number.
# An account or quality of service that every job needs can be added to the call of sbatch below.
logs=.snakemake/slurm_logs
mkdir -p "$logs"
# While the controller is away, wait for it; what it refuses is an error at once.
until scontrol ping 2>/dev/null | grep -q 'is UP'; do
    echo "Slurm's controller does not answer; trying to submit again in 10 s." >&2
    sleep 10
done
# Snakemake itself submits what is to run again, with more memory and time.
exec sbatch --parsable --job-name=anchorscope --no-requeue --output="$logs/%j.log" "$@"
