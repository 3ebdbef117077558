#!/bin/sh
# Submit a job script with the given sbatch options and print the job's number.
logs=.snakemake/slurm_logs
mkdir -p "$logs"
if ! command -v sbatch >/dev/null; then
    echo "There is no sbatch on this machine; start the run where jobs can be submitted." >&2
    exit 1
fi
# Wait while the controller does not answer; a job that it refuses is an error at once.
until scontrol ping 2>/dev/null | grep -q 'is UP'; do
    echo "Slurm's controller does not answer; trying to submit again in 10 s." >&2
    sleep 10
done
# A job without GPUs does not mention them: some sites refuse even `gpu:0`.
for option; do
    shift
    [ "$option" = --gres=gpu:0 ] || set -- "$@" "$option"
done
# No requeue: Snakemake itself submits a failed job again, with more memory and time.
exec sbatch --parsable --job-name=anchorscope --no-requeue --output="$logs/%j.log" "$@"
