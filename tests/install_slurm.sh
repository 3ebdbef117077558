#!/bin/sh
# Install Debian's Slurm, with its database, for the tests that start one. Where that cannot be done, say so: those
# tests are then skipped.
PATH=$PATH:/usr/sbin:/sbin # where the daemons are, and where not every root looks
if command -v slurmctld >/dev/null && command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null; then
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq &&
    apt-get install -y -qq --no-install-recommends \
        slurm-wlm munge slurmdbd mariadb-server slurm-wlm-mysql-plugin >/dev/null; then
    echo "Slurm is installed: its tests run."
else
    echo "Slurm cannot be installed here: its tests are skipped."
fi
