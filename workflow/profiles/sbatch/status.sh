#!/bin/sh
# Print the state of a job: running, success or failed. A job that Slurm no longer knows, or can never start, has
# failed: it is submitted again, so that nobody waits for it forever.
said=$(scontrol --oneliner show job "$1" 2>&1)
state=$(echo "$said" | sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p')
reason=$(echo "$said" | sed -n 's/.* Reason=\([A-Za-z]*\).*/\1/p')
if [ -z "$state" ]; then
    case $said in
        *"Invalid job id"*)
            state=$(sacct --allocations --noheader --parsable2 --format=State --jobs="$1" 2>/dev/null)
            ;;
        *)
            echo "Slurm's controller does not answer; waiting for job $1." >&2
            state=UNREACHABLE
            ;;
    esac
fi
case $state-$reason in
    PENDING-PartitionTimeLimit | PENDING-BadConstraints | PENDING-*PerJob* | PENDING-MaxMemPerLimit | \
        PENDING-*NotAllowed | PENDING-Invalid*)
        scancel "$1"
        echo "Slurm can never start job $1 ($reason); set what it asks for in the profile." >&2
        echo failed
        ;;
    COMPLETED-*) echo success ;;
    PENDING-* | CONFIGURING-* | RUNNING-* | COMPLETING-* | SUSPENDED-* | STOPPED-* | RESIZING-* | SIGNALING-* | \
        STAGE_OUT-* | UNREACHABLE-*)
        echo running
        ;;
    *)
        scancel "$1" 2>/dev/null # it may be held and start again
        echo "Slurm job $1 ended as ${state:-unknown}; its log is .snakemake/slurm_logs/$1.log." >&2
        echo failed
        ;;
esac
